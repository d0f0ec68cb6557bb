// Those who were accepted and never had a slot: how many they may be, whose they are, and, from how
// fast slots come free, whether one that comes now could be ready in time. One that could not is
// refused before anything is done for it. Pure: the time is passed in. The engine's stands in its
// inbox, under that one's lock; the simulator's replicas have the same.
//
// Those in the background (a priority behind the usual one, as a batch's lines have) let others
// pass, so they take none of the others' places: each kind may fill the queue, and those in the
// background what others leave of it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "admission/wait_estimate.h"
#include "base/result.h"
#include "engine/token_stream.h"
#include "request/generation_request.h"

namespace pelton::engine {

class AdmissionQueue {
 public:
  using Places = admission::WaitEstimate::Places;

  // There are two, as there are two kinds of slots.
  enum class Kind { kSampled, kPooled };

  // An answer counts as a request, the tokens of a prompt count once. One request may always wait,
  // however long it is.
  struct Options {
    int requests_max = 1024;
    int64_t tokens_max = int64_t{1} << 22;
    int64_t wait_max_ns = 0;  // nobody waits longer; 0: no bound
    std::array<int, 2> slots = {1, 0};
  };

  // One answer, as it is counted.
  struct Ticket {
    std::string tenant;
    Kind kind = Kind::kSampled;
    bool is_background = false;
    int prompt_tokens = 0;      // for the first of several answers only
    bool only_fetches = false;  // in no line: nobody comes behind it, and it takes no place
  };
  // Of the first of a request's answers.
  static Ticket ticket(const request::GenerationRequest& request);

  explicit AdmissionQueue(const Options& options) : options_(options) {}

  // Who is let in gets the moment by which it must have begun. kOverloaded, kDeadline.
  Result<void> enter(request::GenerationRequest& request, int answers, int64_t now_ns);

  struct Candidate {
    std::string_view tenant;
    double weight = 1.0;
    Kind kind = Kind::kSampled;
    bool is_background = false;
  };
  // Whether the tenant's next request would be refused, whatever it asks for: kOverloaded.
  Result<void> room_for(const Candidate& candidate, int64_t now_ns) const;

  // When it is worth asking again: about half of those who wait have a slot by then.
  int64_t retry_after_ns(int64_t now_ns) const;
  // Until one who came now, alone of its tenant, would have a slot to sample in.
  int64_t wait_ns(int64_t now_ns) const;

  // Whether somebody was left waiting when a step was planned.
  void note_places(Places places, int64_t now_ns);
  // One answer has a slot for the first time; ends with one; ends without ever having had one.
  void note_seated(const Ticket& ticket);
  void note_left_slot(const Ticket& ticket, const StreamEnd& end, const RequestTimes& times,
                      int64_t now_ns);
  void note_never_scheduled(const Ticket& ticket);

  int requests() const { return waiting_.before(true).requests; }
  int64_t tokens() const { return waiting_.before(true).tokens; }

 private:
  struct Waiting {
    int requests = 0;
    int64_t tokens = 0;
  };
  // Those in the background apart.
  struct Kinds {
    Waiting usual;
    Waiting background;
    Waiting& of(bool is_background) { return is_background ? background : usual; }
    // Those who have their turn before one that comes now, or may have.
    Waiting before(bool is_background) const {
      if (!is_background) return usual;
      return {.requests = usual.requests + background.requests,
              .tokens = usual.tokens + background.tokens};
    }
  };
  struct Tenant {
    Kinds waiting;
    double weight = 1.0;
  };
  struct Queue {
    Kinds waiting;
    int scheduled = 0;
    std::map<std::string, Tenant, std::less<>> tenants;  // of those who wait
    admission::WaitEstimate estimate;
  };
  struct Asked {
    std::string_view tenant;
    double weight = 1.0;
    int answers = 1;
    int64_t tokens = 0;
    bool is_background = false;
  };

  Result<void> check_bounds(const Asked& asked) const;
  Result<void> check_wait(int64_t wait_ns) const;
  Result<void> check_deadline(request::GenerationRequest& request, int64_t wait_ns,
                              int64_t now_ns) const;
  int64_t wait_of(const Candidate& candidate, int64_t now_ns) const;
  Waiting counted(const Asked& asked) const;
  void leave(const Ticket& ticket);
  Queue& queue_of(Kind kind) { return queues_[static_cast<size_t>(kind)]; }
  const Queue& queue_of(Kind kind) const { return queues_[static_cast<size_t>(kind)]; }

  const Options options_;
  std::array<Queue, 2> queues_;
  Kinds waiting_;
  bool left_waiting_ = false;
};

}  // namespace pelton::engine
