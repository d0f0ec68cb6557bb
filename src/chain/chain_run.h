// One run of a chain, as a state machine without clock, threads or sockets: it says which calls are
// to be made and which are no longer wanted, and is given their answers. Steps run as soon as what
// they need is there, pieces of a for_each side by side; builtins are computed here, some at a
// time. Owned by whoever drives it (chain_http/chain_service.h, tests), on one thread; the chain
// outlives it.
//
//   ChainRun run(chain, input, {}, now);
//   for (Work work = run.advance(now); !run.over(); work = run.advance(now)) {
//     ... make work.calls, end work.ended, wait for an answer or until run.wake_ns() ...
//     run.on_answer(id, answer);
//   }
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "chain/chain.h"
#include "chain/step_call.h"

namespace pelton::chain {

struct RunEvent {
  enum class Kind { kStepStarted, kPieceDone, kStepDone, kStepSkipped, kRetry, kText };
  Kind kind = Kind::kStepStarted;
  size_t step = 0;
  int64_t piece = -1;
  int64_t pieces = -1;      // kStepStarted, of a for_each
  int attempt = 0;          // kRetry: that has failed, from 0
  int64_t duration_ns = 0;  // kStepDone
  Usage usage;              // kStepDone
  std::string text;         // kText; kRetry: why
};

// Why a run has no output.
struct RunFailure {
  enum class Kind { kStep, kDeadline, kCancelled };
  Kind kind = Kind::kStep;
  std::string step;     // kStep: its name
  int status = 0;       // kStep: as an HTTP answer says it
  std::string message;  // names the step
};

class ChainRun {
 public:
  struct Options {
    std::string any_model = {};  // what "model:*" asks for
    bool streamed = false;       // the text of the chain's stream_from is wanted as it comes
    std::optional<int64_t> deadline_ns = {};
    int calls_max = 256;                            // at once
    int64_t bodies_bytes_max = int64_t{64} << 20;   // of calls at once; one alone may have more
    int64_t value_bytes_max = int64_t{64} << 20;    // all values that it holds at once
    int64_t rendered_bytes_max = int64_t{8} << 20;  // what one step's templates come to
    int64_t answer_bytes_max = int64_t{8} << 20;    // of one call
  };
  struct Work {
    std::vector<StepCall> calls;
    std::vector<uint64_t> ended;  // calls whose answers are no longer wanted
    std::vector<RunEvent> events;
  };
  struct StepSummary {
    bool skipped = false;
    int64_t pieces = -1;
    int64_t calls = 0;  // attempts, of all pieces
    int64_t duration_ns = 0;
    Usage usage;
  };

  // The input has been checked.
  ChainRun(const Chain& chain, Json input, const Options& options, int64_t now_ns);

  // Carries on as far as it goes now, and gives back what has come up since the last time.
  Work advance(int64_t now_ns);
  // When advance() has something to do without an answer; none: only then.
  std::optional<int64_t> wake_ns() const;

  // Of a call that has been ended they are ignored.
  void on_answer(uint64_t call, const CallAnswer& answer, int64_t now_ns);
  void on_text(uint64_t call, std::string text);
  // While held back no call begins, and nothing is computed.
  void hold_back(bool held) { held_ = held; }
  void cancel();

  bool over() const { return over_; }
  const std::optional<RunFailure>& failure() const { return failure_; }
  const Json& output() const { return output_; }
  std::vector<StepSummary> summaries() const;  // by step
  Usage usage() const;

 private:
  struct Attempt {
    int64_t piece = -1;
    int number = 0;
    int64_t at_ns = 0;  // not before
  };
  struct StepState {
    enum class Phase { kWaiting, kRunning, kDone };
    Phase phase = Phase::kWaiting;
    size_t needs_left = 0;
    size_t uses_left = 0;
    Json value;
    int64_t value_bytes = 0;
    // While it runs.
    std::optional<Evaluated> items;  // of for_each
    Json::Array results;             // of its pieces
    int64_t next_piece = 0;
    int64_t piece_count = 0;
    int64_t pieces_left = 0;
    int in_flight = 0;
    std::vector<Attempt> again;  // attempts that wait
    int64_t started_ns = 0;
    StepSummary summary;
  };
  struct InFlight {
    size_t step = 0;
    Attempt attempt;
    int64_t deadline_ns = 0;
    int64_t body_bytes = 0;
    bool has_text = false;  // some of its text has been passed on
  };

  ValueOf names(const Json* item, const Json* index) const;
  void expire(int64_t now_ns);
  void begin(size_t step, int64_t now_ns);
  void pump(size_t step, int64_t now_ns);
  bool has_capacity(size_t step) const;
  std::optional<Attempt> next_attempt(StepState& state, int64_t now_ns);
  void start(size_t step, const Attempt& attempt, int64_t now_ns);
  void start_call(size_t step, const Attempt& attempt, const Json& arguments, int64_t now_ns);
  void on_failed(size_t step, const Attempt& attempt, const CallAnswer& answer, bool may_retry,
                 int64_t now_ns);
  void finish_piece(size_t step, int64_t piece, Json value, int64_t now_ns);
  void finish_step(size_t step, Json value, int64_t now_ns);
  void release_needs(size_t step);
  void keep_bytes(size_t step, int64_t bytes);
  void finish();
  void fail(size_t step, int status, std::string_view what, int64_t piece = -1);
  void end(RunFailure failure);
  void end_calls();

  const Chain& chain_;
  const Json input_;
  const Options options_;
  std::unordered_map<std::string_view, size_t> index_;
  std::vector<StepState> states_;
  std::map<uint64_t, InFlight> in_flight_;
  std::set<std::pair<int64_t, uint64_t>> deadlines_;  // of those
  int64_t bodies_bytes_ = 0;                          // theirs
  uint64_t next_call_ = 1;
  int64_t value_bytes_ = 0;
  size_t steps_left_ = 0;
  int computed_ = 0;          // builtins, in this advance()
  bool interrupted_ = false;  // it has more to compute
  bool held_ = false;
  bool over_ = false;
  Json output_;
  std::optional<RunFailure> failure_;
  Work work_;
};

}  // namespace pelton::chain
