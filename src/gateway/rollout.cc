#include "gateway/rollout.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace pelton::gateway {
namespace {

using Phase = RolloutPhase;
using Command = RolloutCommand;

constexpr std::array<std::pair<Phase, std::string_view>, 4> kPhases = {
    {{Phase::kRunning, "running"},
     {Phase::kPaused, "paused"},
     {Phase::kPromoted, "promoted"},
     {Phase::kTakenBack, "taken_back"}}};
constexpr std::array<std::pair<std::string_view, Command>, 4> kCommands = {
    {{"pause", Command::kPause},
     {"resume", Command::kResume},
     {"rollback", Command::kRollback},
     {"promote", Command::kPromote}}};

std::string percent(double share) {
  return fmt::format("{:.3g} %", share * 100);
}

// "23 of 312 requests failed (7.4 %, interval 4.9 % to 11 %)".
std::string failed_text(int64_t failed, int64_t requests) {
  const Interval of = chance_interval(failed, requests, Rollout::kIntervalAlpha);
  const double share =
      requests == 0 ? 0 : static_cast<double>(failed) / static_cast<double>(requests);
  return fmt::format("{} of {} requests failed ({}, interval {} to {})", failed, requests,
                     percent(share), percent(of.low), percent(of.high));
}

std::string ratio_text(std::string_view what, const RankTest::Evidence& evidence) {
  const RankTest::Ratio ratio = RankTest::ratio(evidence, Rollout::kIntervalAlpha);
  return fmt::format("{} {:.2f} times the other arms' (interval {:.2f} to {:.2f}, {} beside {})",
                     what, ratio.estimate, ratio.interval.low, ratio.interval.high,
                     evidence.values.candidate, evidence.values.others);
}

}  // namespace

std::string_view rollout_phase_name(RolloutPhase phase) {
  return kPhases[static_cast<size_t>(phase)].second;
}

std::optional<RolloutPhase> rollout_phase_named(std::string_view name) {
  const auto found = std::ranges::find(kPhases, name, [](const auto& one) { return one.second; });
  return found == kPhases.end() ? std::nullopt : std::optional(found->first);
}

std::string_view rollout_command_name(RolloutCommand command) {
  return std::ranges::find(kCommands, command, [](const auto& one) { return one.second; })->first;
}

std::optional<RolloutCommand> rollout_command_named(std::string_view name) {
  const auto found = std::ranges::find(kCommands, name, [](const auto& one) { return one.first; });
  return found == kCommands.end() ? std::nullopt : std::optional(found->second);
}

RolloutEvidence& RolloutEvidence::operator+=(const RolloutEvidence& more) {
  errors += more.errors;
  ttft += more.ttft;
  length += more.length;
  return *this;
}

Rollout::Rollout(RolloutPlan plan, RankTest::Grid grid)
    : plan_(std::move(plan)),
      errors_(plan_.error_tolerance),
      ttft_(plan_.ttft_tolerance, grid),
      length_(plan_.length_tolerance, grid) {}

void Rollout::restore(RolloutState state, RolloutEvidence evidence) {
  state_ = std::move(state);
  const size_t last = plan_.shares.size() - 1;
  if (state_.phase == Phase::kPromoted) state_.step = last;
  if (state_.phase != Phase::kPromoted && state_.step >= last) {
    state_.step = last > 0 ? last - 1 : 0;
  }
  errors_.set_evidence(evidence.errors);
  ttft_.set_evidence(std::move(evidence.ttft));
  length_.set_evidence(std::move(evidence.length));
}

RolloutEvidence Rollout::evidence() const {
  return {.errors = errors_.evidence(), .ttft = ttft_.evidence(), .length = length_.evidence()};
}

size_t Rollout::step() const {
  return std::min(state_.step, others_.step_min.value_or(state_.step));
}

double Rollout::share(bool has_workers) const {
  if (state_.phase == Phase::kTakenBack) return 0;
  // Another gateway may hold it back still.
  if (state_.phase == Phase::kPromoted) return plan_.shares[step()];
  return has_workers ? plan_.shares[step()] : 0;
}

void Rollout::note(const RolloutOutcome& outcome) {
  // Of another step it was drawn with another share.
  if (is_over() || outcome.step != step()) return;
  bool has_changed = errors_.note(outcome.side, outcome.failed);
  const bool is_of_step = outcome.side == ArmSide::kCandidate && step() == state_.step;
  state_.step_requests += is_of_step ? 1 : 0;
  if (outcome.ttft_s) has_changed = ttft_.note(outcome.side, *outcome.ttft_s) || has_changed;
  if (outcome.output_tokens) {
    const auto tokens = static_cast<double>(*outcome.output_tokens);
    has_changed = length_.note(outcome.side, tokens) || has_changed;
  }
  if (has_changed) judge();
}

RolloutEvidence Rollout::all() const {
  RolloutEvidence all = others_.evidence;
  all += evidence();
  return all;
}

// Each of them may raise a false alarm in its part of all that may be.
std::vector<Rollout::Test> Rollout::tests() const {
  std::vector<Test> tests;
  const auto sum = [](const RankTest::Products& own, const RankTest::Products& others) {
    RankTest::Products all = own;
    for (size_t i = 0; i < all.size(); ++i) all[i] += others[i];
    return mixed_log_evidence(all);
  };
  const RolloutEvidence& others = others_.evidence;
  if (plan_.watched.errors) {
    auto products = errors_.evidence().log_products;
    for (size_t i = 0; i < products.size(); ++i) products[i] += others.errors.log_products[i];
    tests.push_back({.name = "errors", .log_evidence = mixed_log_evidence(products)});
  }
  if (plan_.watched.ttft) {
    tests.push_back({.name = "ttft",
                     .log_evidence = sum(ttft_.evidence().at_tolerance.larger,
                                         others.ttft.at_tolerance.larger)});
  }
  if (plan_.watched.length) {
    const RankTest::Bets& own = length_.evidence().at_tolerance;
    const RankTest::Bets& more = others.length.at_tolerance;
    tests.push_back({.name = "longer", .log_evidence = sum(own.larger, more.larger)});
    tests.push_back({.name = "shorter", .log_evidence = sum(own.smaller, more.smaller)});
  }
  for (Test& one : tests) {
    one.log_needed = std::log(static_cast<double>(tests.size()) / plan_.false_alarms);
  }
  return tests;
}

void Rollout::judge() {
  for (const Test& test : tests()) {
    if (test.log_evidence < test.log_needed) continue;
    return take_back(test.name, why_of(test.name));
  }
}

std::string Rollout::why_of(std::string_view test) const {
  const RolloutEvidence evidence = all();
  if (test == "errors") {
    const auto& [requests, failed, products] = evidence.errors;
    return fmt::format("{}, of the other arms {}",
                       failed_text(failed.candidate, requests.candidate),
                       failed_text(failed.others, requests.others));
  }
  if (test == "ttft") return ratio_text("its TTFT is", evidence.ttft);
  return ratio_text("its answers are", evidence.length) +
         (test == "longer" ? ": longer" : ": shorter");
}

void Rollout::end_blocks() {
  errors_.end_block();
  ttft_.end_block();
  length_.end_block();
}

void Rollout::take_back(std::string_view reason, std::string why) {
  state_.phase = Phase::kTakenBack;
  state_.reason = reason;
  state_.why = fmt::format("at {}: {}", percent(plan_.shares[step()]), why);
}

void Rollout::next_step(std::string_view reason) {
  ++state_.step;
  state_.is_promoted = reason == "operator";
  state_.step_s = 0;
  state_.step_requests = 0;
  end_blocks();
  if (state_.step + 1 < plan_.shares.size()) return;
  state_.phase = Phase::kPromoted;
  state_.reason = reason;
  state_.why = reason == "operator" ? "an operator said so"
                                    : "it met all gates, and no test spoke against it";
}

void Rollout::pass(double seconds, bool has_workers) {
  if (is_over() || !has_workers) return;
  state_.step_s += seconds;
  // Whoever is behind is waited for: the share is the least of all.
  if (state_.phase != Phase::kRunning || step() != state_.step) return;
  const int64_t requests = state_.step_requests + others_.step_requests;
  const bool has_requests = others_.is_ahead || requests >= plan_.requests_min[state_.step];
  if (has_requests && state_.step_s >= plan_.seconds_min[state_.step]) next_step("gates");
}

Result<void> Rollout::command(RolloutCommand command) {
  const auto means_nothing = [&](std::string_view why) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("the roll-out {}", why), {}};
  };
  if (state_.phase == Phase::kTakenBack) {
    return means_nothing("has been taken back; one of another 'name' begins anew");
  }
  switch (command) {
    case Command::kPause:
      if (is_over()) return means_nothing("is over");
      state_.phase = Phase::kPaused;
      return {};
    case Command::kResume:
      if (is_over()) return means_nothing("is over");
      state_.phase = Phase::kRunning;
      return {};
    case Command::kPromote:
      if (is_over()) return means_nothing("is over");
      next_step("operator");
      return {};
    case Command::kRollback:
      break;
  }
  take_back("operator", "an operator said so");
  return {};
}

void Rollout::set_others(Others others) {
  const size_t before = step();
  others_ = std::move(others);
  if (step() != before) end_blocks();
  if (state_.phase == Phase::kTakenBack) return;
  if (others_.taken_back) {
    state_.phase = Phase::kTakenBack;
    state_.reason = others_.taken_back->reason;
    state_.why = others_.taken_back->why;
    return;
  }
  if (!is_over()) judge();
}

Rollout::Report Rollout::report() const {
  Report report;
  report.evidence = all();
  report.step_requests = state_.step_requests + others_.step_requests;
  const OddsTest::Evidence& errors = report.evidence.errors;
  const auto chance = [&](ArmSide side) {
    return chance_interval(errors.failed.of(side), errors.requests.of(side), kIntervalAlpha);
  };
  report.failed = {.candidate = chance(ArmSide::kCandidate), .others = chance(ArmSide::kOthers)};
  report.ttft = RankTest::ratio(report.evidence.ttft, kIntervalAlpha);
  report.length = RankTest::ratio(report.evidence.length, kIntervalAlpha);
  return report;
}

}  // namespace pelton::gateway
