#include "gateway/rollouts.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/authenticated_cipher.h"
#include "base/file.h"
#include "base/random.h"

namespace pelton::gateway {
namespace {

constexpr std::chrono::milliseconds kTurn{250};
constexpr int64_t kTurnNsMax = 1'000'000'000;    // longer ones: this process stood still
constexpr int64_t kWriteEachNs = 2'000'000'000;  // of evidence; a step is written at once
constexpr size_t kFileBytesMax = size_t{64} << 20;
constexpr size_t kKeptMax = 64;
constexpr size_t kIdBytes = 8;

// Of what evidence is evidence.
std::string tests_of(const RolloutPlan& plan) {
  return fmt::format("{:.12g} {:.12g} {:.12g}", plan.error_tolerance, plan.ttft_tolerance,
                     plan.length_tolerance);
}

}  // namespace

void RolloutTicket::note_end(const End& end) {
  rollouts_->note(*this, end);
}

Rollouts::Rollouts(Options options)
    : options_(std::move(options)), id_(base::random_hex(kIdBytes)) {}

Rollouts::~Rollouts() {
  thread_.reset();
  write();
}

SavedRollouts Rollouts::read_file(const std::string& file) const {
  const Result<std::string> text = base::read_file(file, kFileBytesMax);
  if (!text.ok()) {
    if (text.error().code != ErrorCode::kNotFound) options_.log.error(text.error().message);
    return {};
  }
  Result<SavedRollouts> saved = decode_rollouts(*text);
  if (saved.ok()) return *std::move(saved);
  options_.log.error(
      fmt::format("{}: {}: roll-outs begin at their first steps", file, saved.error().message));
  return {};
}

void Rollouts::set(const GatewayConfig& config) {
  {
    std::lock_guard lock(mutex_);
    if (file_ != config.rollouts_file) {
      SavedRollouts read =
          config.rollouts_file.empty() ? SavedRollouts() : read_file(config.rollouts_file);
      kept_ = std::move(read.rollouts);
      if (!read.id.empty()) id_ = std::move(read.id);
      file_ = config.rollouts_file;
    }
    std::vector<SavedRollout> known = saved();
    known.insert(known.end(), kept_.begin(), kept_.end());
    std::map<std::string, Entry, std::less<>> before = std::exchange(entries_, {});
    for (const RouteConfig& route : config.routes) {
      if (!route.rollout) continue;
      const auto arm = std::ranges::find(route.arms, route.rollout->arm, &RouteArm::name);
      Entry entry{.model = route.model,
                  .tenant = route.tenant,
                  .pool = arm->pool,
                  .identity = fmt::format("{}\n{}\n{}\n{}", route.model, route.tenant, arm->name,
                                          arm->pool),
                  .tests = tests_of(*route.rollout),
                  .rollout = std::make_unique<Rollout>(*route.rollout, RankTest::Grid::kKept)};
      const auto old = before.find(route.rollout->name);
      const bool is_known = old != before.end() && old->second.identity == entry.identity;
      if (is_known && old->second.rollout->plan() == *route.rollout) {
        entries_.insert(before.extract(old));
        continue;
      }
      const auto same = std::ranges::find_if(known, [&](const SavedRollout& one) {
        return one.name == route.rollout->name && one.identity == entry.identity;
      });
      if (same != known.end()) {
        const bool is_alike = same->tests == entry.tests;
        entry.rollout->restore(same->state, is_alike ? same->evidence : RolloutEvidence{});
      }
      if (is_known) {
        entry.pins = std::move(old->second.pins);
        entry.has_workers = old->second.has_workers;
      }
      entries_.emplace(route.rollout->name, std::move(entry));
    }
    // One that leaves the file and comes back is what it was: taken back, for example.
    std::erase_if(known, [&](const SavedRollout& one) {
      const auto now = entries_.find(one.name);
      return now != entries_.end() && now->second.identity == one.identity;
    });
    if (known.size() > kKeptMax) known.resize(kKeptMax);
    kept_ = std::move(known);
    if (!entries_.empty() && !thread_) {
      turned_ns_ = options_.clock.now_ns();
      thread_.emplace(base::PeriodicThread::Options{.name = "pelton-rollouts", .interval = kTurn},
                      [this] { turn(); });
    }
  }
  write();
}

Rollouts::Draw Rollouts::draw(const RouteConfig& route, std::string_view tenant,
                              std::string_view stays) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(route.rollout->name);
  if (found == entries_.end()) return {};
  Entry& entry = found->second;
  Draw draw{.share = {.share = entry.rollout->share(entry.has_workers)},
            .step = entry.rollout->step()};
  if (stays.empty()) return draw;
  draw.pin = base::mix64(base::fnv1a64(stays) + base::fnv1a64(tenant));
  const std::optional<ArmSide> side = entry.pins.find(*draw.pin);
  if (!side) return draw;
  draw.share.pin =
      *side == ArmSide::kCandidate ? RolloutShare::Pin::kCandidate : RolloutShare::Pin::kOthers;
  return draw;
}

std::unique_ptr<RolloutTicket> Rollouts::begin(const RouteConfig& route, const Draw& draw,
                                               ArmSide side) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(route.rollout->name);
  const bool is_drawn = draw.share.share > 0 && draw.share.share < 1;
  if (found == entries_.end() || !is_drawn) return nullptr;
  if (draw.pin && !found->second.pins.note(*draw.pin, side)) return nullptr;
  auto ticket = std::make_unique<RolloutTicket>();
  ticket->rollouts_ = this;
  ticket->name_ = found->first;
  ticket->side_ = side;
  ticket->step_ = draw.step;
  return ticket;
}

void Rollouts::note(const RolloutTicket& ticket, const RolloutTicket::End& end) {
  if (!end.counts) return;
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(ticket.name_);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  const RolloutOutcome outcome{.side = ticket.side_,
                               .step = ticket.step_,
                               .failed = end.failed,
                               .ttft_s = end.ttft_s,
                               .output_tokens = end.output_tokens};
  const RolloutState before = entry.rollout->state();
  entry.rollout->note(outcome);
  log_change(entry, before);
}

void Rollouts::audit(const Entry& entry) const {
  if (!options_.on_event) return;
  const RolloutState& state = entry.rollout->state();
  const RolloutPlan& plan = entry.rollout->plan();
  options_.on_event({.who = "the gateway",
                     .what = fmt::format("roll-out {}", rollout_phase_name(state.phase)),
                     .target = plan.name,
                     .result = state.reason.empty()
                                   ? fmt::format("{:.12g} %", plan.shares[state.step] * 100)
                                   : fmt::format("{}: {}", state.reason, state.why)});
}

void Rollouts::log_change(const Entry& entry, const RolloutState& before) {
  const RolloutState& state = entry.rollout->state();
  if (state.phase == before.phase && state.step == before.step) return;
  is_changed_ = true;
  const RolloutPlan& plan = entry.rollout->plan();
  audit(entry);
  if (state.phase == RolloutPhase::kTakenBack) {
    options_.log.warning(fmt::format("roll-out '{}': the arm '{}' is taken back ({}) {}", plan.name,
                                     plan.arm, state.reason, state.why));
  } else if (state.phase == RolloutPhase::kPromoted) {
    options_.log.info(fmt::format("roll-out '{}': the arm '{}' has all conversations: {}",
                                  plan.name, plan.arm, state.why));
  } else {
    options_.log.info(fmt::format("roll-out '{}': {} at {:.12g} % of the conversations", plan.name,
                                  rollout_phase_name(state.phase), plan.shares[state.step] * 100));
  }
}

Result<void> Rollouts::command(std::string_view name, RolloutCommand command,
                               std::string_view who) {
  {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find(name);
    if (found == entries_.end()) {
      return Error{ErrorCode::kNotFound, fmt::format("no roll-out is named '{}'", name), "name"};
    }
    const RolloutState before = found->second.rollout->state();
    TRY(found->second.rollout->command(command));
    options_.log.info(
        fmt::format("roll-out '{}': {}, by {}", name, rollout_command_name(command), who));
    log_change(found->second, before);
    is_changed_ = true;
  }
  write();
  return {};
}

std::vector<Rollouts::Shown> Rollouts::shown() const {
  std::lock_guard lock(mutex_);
  std::vector<Shown> all;
  for (const auto& [name, entry] : entries_) {
    const Rollout& rollout = *entry.rollout;
    all.push_back({.model = entry.model,
                   .tenant = entry.tenant,
                   .pool = entry.pool,
                   .plan = rollout.plan(),
                   .state = rollout.state(),
                   .has_workers = entry.has_workers,
                   .share = rollout.share(entry.has_workers),
                   .gateways = entry.gateways,
                   .tests = rollout.tests(),
                   .report = rollout.report()});
  }
  return all;
}

std::vector<SavedRollout> Rollouts::saved() const {
  std::vector<SavedRollout> all;
  for (const auto& [name, entry] : entries_) {
    all.push_back({.name = name,
                   .identity = entry.identity,
                   .tests = entry.tests,
                   .state = entry.rollout->state(),
                   .evidence = entry.rollout->evidence()});
  }
  return all;
}

bool Rollouts::any() const {
  std::lock_guard lock(mutex_);
  return !entries_.empty();
}

std::string Rollouts::own_text() const {
  std::lock_guard lock(mutex_);
  std::vector<SavedRollout> all = saved();
  for (SavedRollout& one : all) {
    one.evidence.ttft.grid.clear();
    one.evidence.length.grid.clear();
  }
  return encode({.id = id_, .rollouts = std::move(all)});
}

void Rollouts::set_others(const std::vector<SavedRollouts>& others) {
  std::lock_guard lock(mutex_);
  for (auto& [name, entry] : entries_) {
    Rollout::Others sum;
    entry.gateways = 1;
    const RolloutState before = entry.rollout->state();
    for (const SavedRollouts& gateway : others) {
      // What this one said before its last start is its own.
      if (gateway.id == id_) continue;
      for (const SavedRollout& one : gateway.rollouts) {
        if (one.name != name || one.identity != entry.identity) continue;
        ++entry.gateways;
        if (one.tests == entry.tests) sum.evidence += one.evidence;
        if (one.state.phase == RolloutPhase::kTakenBack) {
          sum.taken_back = one.state;
          continue;
        }
        sum.step_min = std::min(sum.step_min.value_or(one.state.step), one.state.step);
        if (one.state.step == before.step) sum.step_requests += one.state.step_requests;
        const bool has_met = one.state.step > before.step && !one.state.is_promoted;
        sum.is_ahead = sum.is_ahead || has_met;
      }
    }
    entry.rollout->set_others(std::move(sum));
    log_change(entry, before);
  }
}

void Rollouts::turn() {
  bool is_due = false;
  {
    std::lock_guard lock(mutex_);
    const int64_t now_ns = options_.clock.now_ns();
    const int64_t passed_ns = std::clamp<int64_t>(now_ns - turned_ns_, 0, kTurnNsMax);
    turned_ns_ = now_ns;
    for (auto& [name, entry] : entries_) {
      const bool had_workers = std::exchange(entry.has_workers, options_.has_workers(entry.pool));
      const RolloutState before = entry.rollout->state();
      entry.rollout->pass(static_cast<double>(passed_ns) * 1e-9, had_workers && entry.has_workers);
      log_change(entry, before);
    }
    is_due = is_changed_ || (!entries_.empty() && now_ns - written_ns_ >= kWriteEachNs);
  }
  if (is_due) write();
}

void Rollouts::write() {
  std::lock_guard one_at_a_time(write_mutex_);
  std::string file;
  std::string text;
  {
    std::lock_guard lock(mutex_);
    is_changed_ = false;
    written_ns_ = options_.clock.now_ns();
    if (file_.empty()) return;
    file = file_;
    std::vector<SavedRollout> all = saved();
    all.insert(all.end(), kept_.begin(), kept_.end());
    text = encode({.id = id_, .rollouts = std::move(all)});
  }
  const Result<void> written = base::write_file(file, text);
  if (written.ok() == !is_failing_) return;
  is_failing_ = !written.ok();
  if (written.ok()) {
    options_.log.info(fmt::format("{} is written again", file));
  } else {
    options_.log.error(
        fmt::format("how far roll-outs have come is not kept: {}", written.error().message));
  }
}

}  // namespace pelton::gateway
