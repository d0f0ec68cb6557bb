// What a scheduler holds, and what must be true of it between any two calls.
#include <algorithm>

#include "base/check.h"
#include "engine/scheduler.h"

namespace pelton::engine {

Ledger Scheduler::ledger() const {
  const auto blocks = [](const kv::BlockPool& pool, int pinned) {
    return Ledger::Blocks{.total = pool.block_count(),
                          .free = pool.empty_count(),
                          .kept = pool.kept_count(),
                          .held = pool.used_count(),
                          .pinned = pinned};
  };
  Ledger ledger;
  ledger.full = blocks(full_pool_, pinned_full_);
  ledger.window = blocks(window_pool_, pinned_window_);
  ledger.host_full = blocks(host_full_pool_, 0);
  ledger.host_window = blocks(host_window_pool_, 0);
  ledger.running = running_count();
  ledger.waiting = waiting_count();
  ledger.swapped_out = swapped_out_count();
  ledger.landing = static_cast<int>(sequences_.size()) - ledger.running - ledger.waiting;
  ledger.seats_free = static_cast<int>(free_seats_.size());
  ledger.pooled_seats_free = static_cast<int>(free_pooled_seats_.size());
  ledger.steps_in_flight = static_cast<int>(uncommitted_.size());
  return ledger;
}

void Scheduler::check_integrity() const {
  const auto none = [](const kv::BlockPool& pool) {
    return std::vector<int>(static_cast<size_t>(pool.block_count()), 0);
  };
  std::vector<int> full_holders = none(full_pool_);
  std::vector<int> window_holders = none(window_pool_);
  std::vector<int> host_full_holders = none(host_full_pool_);
  std::vector<int> host_window_holders = none(host_window_pool_);
  std::vector<bool> seats(static_cast<size_t>(capacity_.seat_count()), false);
  full_pool_.check_integrity();
  window_pool_.check_integrity();
  host_full_pool_.check_integrity();
  host_window_pool_.check_integrity();
  const auto count = [](std::vector<int>& holders, const kv::BlockTable& table) {
    for (const BlockId block : table.blocks()) {
      if (block != kNoBlock) ++holders[static_cast<size_t>(block)];
    }
  };
  const auto count_free = [&](const std::vector<Seat>& free, bool pooled) {
    for (const Seat seat : free) {
      CHECK(!seats[static_cast<size_t>(seat)], "a seat is free twice");
      CHECK((seat >= capacity_.sequences_max) == pooled, "a seat of another kind");
      seats[static_cast<size_t>(seat)] = true;
    }
  };
  count_free(free_seats_, false);
  count_free(free_pooled_seats_, true);
  for (const Sequence* sequence : running_) {
    CHECK(sequence->stage == Sequence::Stage::kRunning);
    CHECK(!seats[static_cast<size_t>(sequence->seat)], "a seat is taken twice");
    seats[static_cast<size_t>(sequence->seat)] = true;
    count(full_holders, sequence->full);
    count(window_holders, sequence->window);
    check_settled(*sequence);
  }
  for (const Pin& pin : pins_) {
    count(full_holders, pin.full);
    count(window_holders, pin.window);
  }
  CHECK(count_pinned(&Pin::full) == pinned_full_ && count_pinned(&Pin::window) == pinned_window_);
  CHECK(std::find(seats.begin(), seats.end(), false) == seats.end(), "a seat is lost");
  CHECK(std::is_sorted(running_.begin(), running_.end(), Earlier{}));
  int waiting = 0;
  int swapped_out = 0;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.stage != Sequence::Stage::kWaiting) {
      CHECK(!sequence.swapped_out(), "a copy of what is on the device, or of nothing");
      continue;
    }
    if (sequence.swapped_out()) ++swapped_out;
    count(host_full_holders, sequence.host_full);
    count(host_window_holders, sequence.host_window);
    CHECK(sequence.swapped_out() == (sequence.computed > 0));
    CHECK(sequence.full.blocks().empty() && sequence.window.blocks().empty());
    ++waiting;
  }
  CHECK(swapped_out == swapped_out_count_);
  CHECK(waiting == queue_.waiting_count(), "somebody waits who is not in line");
  const auto compare = [](const std::vector<int>& holders, const kv::BlockPool& pool,
                          const char* words) {
    for (size_t i = 0; i < holders.size(); ++i) {
      CHECK(holders[i] == pool.holders(static_cast<BlockId>(i)), words);
    }
  };
  compare(full_holders, full_pool_, "full block lost");
  compare(window_holders, window_pool_, "window block lost");
  compare(host_full_holders, host_full_pool_, "full block of the host lost");
  compare(host_window_holders, host_window_pool_, "window block of the host lost");
  if (uncommitted_.empty()) {
    CHECK(sequences_.size() == running_.size() + static_cast<size_t>(waiting),
          "a sequence is lost");
  }
}

// Nothing is promised as computed that is not, and every block up to there is one.
void Scheduler::check_settled(const Sequence& sequence) const {
  CHECK(sequence.settled <= sequence.computed);
  CHECK(sequence.in_flight > 0 || sequence.settled == sequence.computed, "a step was not settled");
  CHECK(static_cast<int>(sequence.full.blocks().size()) * capacity_.block_tokens >=
        sequence.computed);
  const int seen_from = std::max(0, sequence.computed - capacity_.window_tokens + 1);
  for (int position = seen_from; position < sequence.computed; ++position) {
    const size_t entry = static_cast<size_t>(position / capacity_.block_tokens);
    CHECK(sequence.window.blocks()[entry] != kNoBlock, "a block in the window is missing");
  }
}

}  // namespace pelton::engine
