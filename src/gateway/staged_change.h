// Whether a configuration that a region's gateway has taken is to go on to the next regions, to
// stay a while, or to be taken back: by what the gateway says of itself before and since. Pure;
// whoever asks the gateway owns it (apps/fleet_stage.cc).
//
// Example: 40 requests ended since it was put in force, 6 of them failed (15 %), and 2 % may: it is
// taken back. Had 4 of 20 failed, it would not be yet: so few happen by chance.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

namespace pelton::gateway {

// Of one gateway, at one time.
struct StagedFigures {
  int64_t requests = 0;               // that were over by then
  int64_t failed = 0;                 // of these: not answered, or broken off
  std::set<std::string> pools_ready;  // with a worker that takes requests
  std::string etag;                   // of the file that it has
  std::string error;                  // of that file's last reading; empty: it is in force
};

class StagedChange {
 public:
  static constexpr int64_t kFailedMin = 5;

  struct Rules {
    int64_t watch_ns = 0;
    // So long a gateway may say nothing, and a pool have no worker: its workers may be new ones.
    int64_t grace_ns = 0;
    double failed_max = 0;  // share of requests
    std::string etag;       // that the change left
  };
  StagedChange(Rules rules, StagedFigures before, int64_t now_ns);

  enum class Verdict {
    kWait,
    kGood,
    kBad,
    kOthers,  // somebody else has changed the file: what is there is not ours to take back
  };
  Verdict note(const StagedFigures& now, int64_t now_ns);
  // It did not answer.
  Verdict note_silent(const std::string& trouble, int64_t now_ns);
  // Of kBad and kOthers.
  const std::string& reason() const { return reason_; }

 private:
  Verdict end(Verdict verdict, std::string reason);

  const Rules rules_;
  const StagedFigures before_;
  const int64_t began_ns_;
  int64_t answered_ns_;  // last
  int64_t whole_ns_;     // when all pools that had workers had some last
  std::string reason_;
};

// Whether a change whose answer was lost is there, by the ETag that the file has since.
enum class LostAnswer {
  kWait,    // not yet: a gateway reads it for a while before it is there
  kThere,   // it was taken
  kAway,    // it was not, and whoever has changed the file meanwhile keeps it from being taken
  kUnsure,  // the file was as before, or nobody said so, until the end of the time for it
};
// `now`: empty where the gateway did not answer. It is about one that had to find `before` there.
LostAnswer lost_answer(std::string_view now, std::string_view before, std::string_view planned,
                       bool is_time_over);

}  // namespace pelton::gateway
