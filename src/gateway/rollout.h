// A roll-out of one arm of a route (the candidate) beside its others: the share of the
// conversations that it has, step by step, and when it is taken back. Pure: who owns it says what
// became of requests, what time has passed, and what an operator wants. One thread at a time.
//
//   running  step 1 %  -- both gates met -->  5 %  -->  25 %  -->  100 %: promoted
//      |  ^                                                      |
//      |  paused: the share stays, and so do the tests           |
//      +------ evidence against it, or an operator --------------+--> taken back: 0 %, for good
//
// The tests (gateway/sequential_evidence.h) run through all steps: the chance that a candidate
// which is as good as the others is ever taken back by them is `false_alarms` at most. That holds
// if what is noted was drawn: each outcome for the candidate with the step's share, and
// independently. So of a conversation or user its first request is noted, and none of another step.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gateway/sequential_evidence.h"

namespace pelton::gateway {

// As [route.rollout] says.
struct RolloutPlan {
  std::string name = {};  // another one begins anew
  std::string arm = {};
  std::vector<double> shares = {0.01, 0.05, 0.25, 1};  // rising; the last one is 1
  // Of each step but the last: requests of the candidate and seconds until the next one.
  std::vector<int64_t> requests_min = {200, 200, 200};
  std::vector<double> seconds_min = {300, 300, 300};
  double false_alarms = 0.005;
  struct Watched {
    bool errors = true;
    bool ttft = true;
    bool length = true;
    friend bool operator==(const Watched&, const Watched&) = default;
  };
  Watched watched = {};
  // By how much more is not worse, as a share: of the odds to fail, of TTFT, of the length either
  // way.
  double error_tolerance = 0;
  double ttft_tolerance = 0.1;
  double length_tolerance = 0.25;

  friend bool operator==(const RolloutPlan&, const RolloutPlan&) = default;
};

// What became of one request.
struct RolloutOutcome {
  ArmSide side = ArmSide::kOthers;
  size_t step = 0;      // in which it was drawn
  bool failed = false;  // it, or an attempt of it, by its arm's doing
  std::optional<double> ttft_s = {};
  std::optional<int64_t> output_tokens = {};
};

enum class RolloutPhase { kRunning, kPaused, kPromoted, kTakenBack };
std::string_view rollout_phase_name(RolloutPhase phase);
std::optional<RolloutPhase> rollout_phase_named(std::string_view name);

enum class RolloutCommand { kPause, kResume, kRollback, kPromote };
std::string_view rollout_command_name(RolloutCommand command);
std::optional<RolloutCommand> rollout_command_named(std::string_view name);

struct RolloutEvidence {
  OddsTest::Evidence errors;
  RankTest::Evidence ttft;
  RankTest::Evidence length;

  RolloutEvidence& operator+=(const RolloutEvidence& more);
  friend bool operator==(const RolloutEvidence&, const RolloutEvidence&) = default;
};

// How far it has come: with its evidence all that it is beyond its plan.
struct RolloutState {
  RolloutPhase phase = RolloutPhase::kRunning;
  size_t step = 0;
  double step_s = 0;          // time at this step, in which the candidate had workers
  int64_t step_requests = 0;  // of the candidate, which counted, drawn in this step
  bool is_promoted = false;   // an operator has brought it to this step, whatever its gates said
  // Why it was taken back or promoted: "errors", "ttft", "longer", "shorter", "gates", "operator";
  // empty: it was not.
  std::string reason;
  std::string why;  // the same in words, with figures

  friend bool operator==(const RolloutState&, const RolloutState&) = default;
};

class Rollout {
 public:
  // Intervals that are shown hold with this chance, at every look.
  static constexpr double kIntervalAlpha = 0.05;

  // `grid`: whether intervals of ratios are kept.
  Rollout(RolloutPlan plan, RankTest::Grid grid);
  // Goes on from there; a step that the plan does not have is its last one before 1.
  void restore(RolloutState state, RolloutEvidence evidence);

  // Of conversations; 0 while the candidate has no worker, but for one that is promoted.
  double share(bool has_workers) const;
  void note(const RolloutOutcome& outcome);
  // So much more time has passed. `has_workers`: the candidate's pool takes requests.
  void pass(double seconds, bool has_workers);
  // Error: kInvalidArgument, what that means nothing for.
  Result<void> command(RolloutCommand command);

  // What other gateways have seen, and said of theirs. A roll-out that one of them has taken back
  // is taken back; the share is the least of all; and a step is left when all are past it.
  struct Others {
    RolloutEvidence evidence = {};
    int64_t step_requests = 0;  // of those at this very step
    bool is_ahead = false;      // one of them is past it, as all had met its gates
    std::optional<size_t> step_min = {};
    std::optional<RolloutState> taken_back = {};  // of one of them
  };
  void set_others(Others others);

  // Each test: how strong its evidence is beside what it takes.
  struct Test {
    std::string_view name;
    double log_evidence = 0;
    double log_needed = 0;
  };
  std::vector<Test> tests() const;

  struct Report {
    RolloutEvidence evidence;  // of all gateways
    BySide<Interval> failed;   // the share of requests that fail
    RankTest::Ratio ttft;      // the candidate's to the others'
    RankTest::Ratio length;
    int64_t step_requests = 0;  // of all gateways
  };
  Report report() const;

  const RolloutPlan& plan() const { return plan_; }
  const RolloutState& state() const { return state_; }
  RolloutEvidence evidence() const;  // this gateway's own
  // That of the strictest gateway.
  size_t step() const;

 private:
  bool is_over() const {
    return state_.phase == RolloutPhase::kPromoted || state_.phase == RolloutPhase::kTakenBack;
  }
  RolloutEvidence all() const;
  void end_blocks();
  void judge();
  void next_step(std::string_view reason);
  void take_back(std::string_view reason, std::string why);
  std::string why_of(std::string_view test) const;

  const RolloutPlan plan_;
  RolloutState state_;
  Others others_;
  OddsTest errors_;
  RankTest ttft_;
  RankTest length_;
};

}  // namespace pelton::gateway
