#include "executor/slot_grammars.h"

#include <algorithm>

namespace pelton::executor {
namespace {

// What all grammars may make a step wait for, in steps of work (grammar/work_budget.h) on each
// thread: some milliseconds, whoever asks for what. More is done beside the steps (guide_work.h),
// what is long by one thread for so many of the model's.
constexpr int64_t kWorkPerStep = 160'000;
constexpr int kThreadsPerGuideThread = 8;
// Guesses that cannot come cost rows and no more: finding out has a smaller share of that work.
constexpr int kGuessWorkShare = 4;

}  // namespace

SlotGrammars::SlotGrammars(const Options& options, base::ThreadPool& pool)
    : options_(options),
      pool_(pool),
      states_(static_cast<size_t>(options.slots)),
      threads_(std::max(1, pool.size() / kThreadsPerGuideThread)) {
  for (engine::Slot slot = 0; slot < options.sampling_slots; ++slot) {
    std::vector<uint64_t>& mask = at(slot).follower.memory();
    mask.reserve((static_cast<size_t>(options.vocab_size) + 63) / 64);
    bytes_ += static_cast<int64_t>(mask.capacity() * sizeof(uint64_t));
  }
}

void SlotGrammars::apply(const engine::StepPlan& plan) {
  for (const ScheduledRow& row : plan.sequences) {
    State& state = at(row.slot);
    // What a deferred row computed is computed again, with tokens that are known by now.
    if (row.tokens.count > 0) state.deferral = nullptr;
    const engine::Arrival* const arrival = plan.arrival_of(row);
    if (arrival == nullptr) continue;
    state.follower.clear();
    state.held.reset();
    if (!arrival->guide) continue;
    const std::span<const TokenId> history(arrival->history);
    const auto prompt = std::min(static_cast<size_t>(arrival->prompt_count), history.size());
    state.follower.begin(*arrival->guide, history.subspan(prompt), arrival->tenant);
  }
  divide_work(plan);
}

// The more grammars a step has, the less each may make it wait.
void SlotGrammars::divide_work(const engine::StepPlan& plan) {
  const auto grammars = std::count_if(plan.sequences.begin(), plan.sequences.end(),
                                      [&](const auto& row) { return active(row.slot); });
  const int64_t share = kWorkPerStep * pool_.size() / std::max<int64_t>(grammars, 1);
  work_max_ = std::min(options_.work_max, share);
}

GuideFollower::Grant SlotGrammars::grant() {
  return {.threads = threads_,
          .work_max = work_max_,
          .mask_words = (static_cast<size_t>(options_.sampled_vocab) + 63) / 64};
}

SlotGrammars::Next SlotGrammars::next(engine::Slot slot, TokenId forced) {
  State& state = at(slot);
  if (state.deferral != nullptr) return Next::kDefer;
  const bool is_other = forced != engine::kNotForced && state.held && state.held->token != forced;
  if (is_other) {  // put there since that one was drawn
    state.follower.take_back();
    state.held.reset();
  }
  switch (state.follower.find_allowed(grant())) {
    case GuideFollower::State::kFailed:
      return Next::kFail;
    case GuideFollower::State::kLater:
      state.deferral = state.follower.deferral();
      return Next::kDefer;
    case GuideFollower::State::kKnown:
      break;
  }
  return state.held ? Next::kHeld : Next::kDraw;
}

SlotGrammars::Next SlotGrammars::accept(engine::Slot slot, const sampling::SampledChoice& choice,
                                        int jump_max) {
  State& state = at(slot);
  switch (state.follower.accept(choice.token, jump_max, grant())) {
    case GuideFollower::State::kFailed:
      return Next::kFail;
    case GuideFollower::State::kLater:
      state.held = choice;
      state.deferral = state.follower.deferral();
      return Next::kDefer;
    case GuideFollower::State::kKnown:
      break;
  }
  return Next::kDraw;
}

std::vector<TokenId> SlotGrammars::take_forced(engine::Slot slot) {
  State& state = at(slot);
  state.held.reset();
  return state.follower.take_forced();
}

void SlotGrammars::cut(const engine::StepPlan& plan, Drafts& drafts) {
  cut_.clear();
  for (size_t i = 0; i < drafts.rows.size(); ++i) {
    const State& state = at(plan.sequences[i].slot);
    if (!state.follower.active() || state.deferral || state.held) continue;
    if (drafts.rows[i].count > 0) cut_.push_back(i);
  }
  if (cut_.empty()) return;
  pool_.parallel_for(static_cast<int64_t>(cut_.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t at_cut = begin; at_cut < end; ++at_cut) {
      const size_t i = cut_[static_cast<size_t>(at_cut)];
      const GuideFollower& follower = at(plan.sequences[i].slot).follower;
      engine::Slice& row = drafts.rows[i];
      const size_t allowed = follower.count_allowed(drafts.of(i), work_max_ / kGuessWorkShare);
      row.count = static_cast<decltype(row.count)>(allowed);
    }
  });
}

// Whoever samples finds the mask there. Where it takes long it is found out beside the steps that
// follow.
void SlotGrammars::fill_masks(const engine::StepPlan& plan) {
  wanted_.clear();
  for (const ScheduledRow& row : plan.sequences) {
    State& state = at(row.slot);
    const bool wanted = state.follower.active() && !state.deferral && !state.follower.over();
    if (wanted) wanted_.push_back(&state);
  }
  if (wanted_.empty()) return;
  const GuideFollower::Grant granted = grant();
  pool_.parallel_for(static_cast<int64_t>(wanted_.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      (void)wanted_[static_cast<size_t>(i)]->follower.find_allowed(granted);
    }
  });
}

}  // namespace pelton::executor
