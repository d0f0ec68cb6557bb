// Prefixes beyond the device: what is evicted is found on the host, what has no room there on the
// disk, and nothing that a tier does changes a token.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/modelled_executor.h"
#include "engine/pinned_at_start.h"
#include "engine/scheduler.h"

namespace pelton::engine {
namespace {

using Outcome = kv::TransferResult::Outcome;
using Direction = kv::BlockTransfer::Direction;

// Room for two prompts of 64 tokens on the device.
ExecutorCapacity capacity(int host, int disk) {
  return {.block_tokens = 4,
          .groups = {{{.name = "full"}, {40, host, disk}},
                     {{.name = "window", .sliding_window = 10}, {24, host, disk}}},
          .sequences_max = 2,
          .batch_tokens_max = 64,
          .context_tokens_max = 128};
}

class Tiers : public testing::Test {
 protected:
  void make(const ExecutorCapacity& has, kv::DiskWrites writes) {
    scheduler_ =
        std::make_unique<Scheduler>(has, Scheduler::Options{.hash_seed = 1, .disk_writes = writes});
    executor_ = std::make_unique<ModelledExecutor>(ModelledExecutor::Options{
        .capacity = has,
        .next_token = checksum_tokens(1000),
        .fail_step = [this](const StepPlan& plan) -> std::optional<Error> {
          if (!fails_copies_ || plan.copies.empty() || !plan.sequences.empty()) return std::nullopt;
          return Error{ErrorCode::kInternal, "this step fails"};
        },
        .transfer_outcome =
            [this](const kv::BlockTransfer& what) {
              transfers_.push_back(what);
              return what.direction == Direction::kRead ? read_outcome_ : write_outcome_;
            }});
    if (executor_->disk() != nullptr) scheduler_->adopt_kept(*executor_->disk());
  }

  struct Answer {
    std::vector<TokenId> tokens;
    StreamEnd end;
  };
  Answer run(uint64_t prompt, const std::string& salt = "", const std::string& tenant = "",
             uint64_t length = 64) {
    CHECK(scheduler_->submit(request_of(prompt, salt, tenant, length)).ok());
    return turn();
  }

  static request::GenerationRequest request_of(uint64_t prompt, const std::string& salt = "",
                                               const std::string& tenant = "",
                                               uint64_t length = 64) {
    request::GenerationRequest request;
    for (uint64_t i = 0; i < length; ++i) {
      request.prompt.push_back(static_cast<TokenId>(base::random_bits(prompt, i) % 1000));
    }
    request.stop.max_new_tokens = 4;
    request.cache_salt = salt;
    request.tenant = tenant;
    return request;
  }

  // Until nobody has anything to do.
  Answer turn() {
    Answer answer;
    for (int i = 0; i < 10'000 && !scheduler_->idle(); ++i) {
      if (executor_->disk() != nullptr) {
        if (!holds_results_) {
          for (const kv::TransferResult& result : executor_->disk()->take_results()) {
            if (one_after_the_other_) now_ns_ += transfer_ns_;
            scheduler_->finish_transfer(
                {.id = result.id, .outcome = result.outcome, .ns = transfer_ns_}, now_ns_);
          }
        }
      }
      StepPlan plan = scheduler_->plan(now_ns_ += 1'000'000);
      if (executor_->disk() != nullptr) executor_->disk()->begin(scheduler_->take_transfers());
      if (!plan.empty()) {
        executor_->submit(std::move(plan));
        StepResult result = executor_->collect();
        result.elapsed_ns = step_ns_;
        scheduler_->commit(std::move(result));
      }
      scheduler_->check_integrity();
      scheduler_->take_events(events_);
      for (Scheduler::Event& event : events_) {
        if (event.token) answer.tokens.push_back(event.token->token);
        if (event.end) answer.end = *event.end;
      }
      if (holds_results_ && answer.end.prompt_tokens > 0) break;
    }
    EXPECT_TRUE(holds_results_ || scheduler_->ledger().clean());
    return answer;
  }

  const DiskTier::Counters& disk() const { return scheduler_->disk().counters(); }

  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<ModelledExecutor> executor_;
  std::vector<Scheduler::Event> events_;
  std::vector<kv::BlockTransfer> transfers_;
  Outcome read_outcome_ = Outcome::kDone;
  Outcome write_outcome_ = Outcome::kDone;
  bool fails_copies_ = false;
  bool holds_results_ = false;
  bool one_after_the_other_ = false;
  int64_t transfer_ns_ = 0;
  int64_t step_ns_ = 0;
  int64_t now_ns_ = 0;
};

TEST_F(Tiers, what_the_device_evicts_is_found_on_the_host) {
  make(capacity(0, 0), kv::DiskWrites::kSelective);
  const Answer alone = run(1);
  for (uint64_t other = 2; other < 6; ++other) run(other);
  EXPECT_EQ(run(1).end.cached_tokens, 0) << "the device had room for it: this test shows nothing";

  make(capacity(100, 0), kv::DiskWrites::kSelective);
  EXPECT_EQ(run(1).tokens, alone.tokens);
  for (uint64_t other = 2; other < 6; ++other) run(other);
  const Answer again = run(1);
  EXPECT_EQ(again.tokens, alone.tokens);
  EXPECT_GE(again.end.cached_tokens, 60);
  EXPECT_EQ(again.end.cached_by_tier[kv::kHost], again.end.cached_tokens);
  EXPECT_EQ(scheduler_->counters().prompt_tokens_cached_by_tier[kv::kHost],
            again.end.cached_tokens);
  EXPECT_GT(scheduler_->counters().blocks_offloaded, 0);
  const Answer third = run(1);
  EXPECT_EQ(third.end.cached_by_tier[kv::kDevice], third.end.cached_tokens) << "it is back";
}

TEST_F(Tiers, nothing_of_a_step_that_failed_is_found_on_the_host) {
  make(capacity(100, 100), kv::DiskWrites::kAll);
  fails_copies_ = true;  // those beside no row: for the disk's sake
  run(1);
  EXPECT_GT(scheduler_->counters().blocks_offloaded, 0);
  EXPECT_EQ(disk().blocks_written, 0);
}

TEST_F(Tiers, what_has_no_room_on_the_host_is_found_on_the_disk) {
  for (const kv::DiskWrites writes : {kv::DiskWrites::kAll, kv::DiskWrites::kEvicted}) {
    make(capacity(40, 400), writes);
    const Answer first = run(1);
    for (uint64_t other = 2; other < 12; ++other) run(other);
    const Answer again = run(1);
    EXPECT_EQ(again.tokens, first.tokens);
    EXPECT_GE(again.end.cached_tokens, 60);
    EXPECT_GE(again.end.cached_by_tier[kv::kDisk], 56);
    EXPECT_GT(disk().blocks_written, 100);
    EXPECT_GT(disk().blocks_read, 10);
    EXPECT_EQ(disk().loads, 1);
  }
}

TEST_F(Tiers, selective_writes_what_was_found_once) {
  make(capacity(40, 400), kv::DiskWrites::kSelective);
  run(1);
  EXPECT_EQ(disk().blocks_written, 0);
  run(1);
  EXPECT_GT(disk().blocks_written, 10);
  for (uint64_t other = 2; other < 12; ++other) run(other);
  EXPECT_GE(run(1).end.cached_by_tier[kv::kDisk], 56);
}

TEST_F(Tiers, damaged_blocks_are_computed_again_and_counted) {
  make(capacity(40, 400), kv::DiskWrites::kAll);
  const Answer first = run(1);
  for (uint64_t other = 2; other < 12; ++other) run(other);
  read_outcome_ = Outcome::kCorrupt;
  const Answer again = run(1);
  EXPECT_EQ(again.tokens, first.tokens);
  EXPECT_EQ(again.end.cached_by_tier[kv::kDisk], 0);
  EXPECT_GT(disk().blocks_corrupt, 10);
}

// FT-33, with the next.
TEST_F(Tiers, a_disk_that_fails_is_left_alone_for_a_while) {
  make(capacity(40, 400), kv::DiskWrites::kAll);
  const Answer first = run(1);
  for (uint64_t other = 2; other < 12; ++other) run(other);
  read_outcome_ = Outcome::kFailed;
  EXPECT_EQ(run(1).tokens, first.tokens);
  EXPECT_GE(disk().errors, 3);
  EXPECT_GE(disk().times_off, 1);
  const size_t tried = transfers_.size();
  for (uint64_t other = 2; other < 8; ++other) run(other);
  EXPECT_EQ(transfers_.size(), tried);
  now_ns_ += 31'000'000'000;
  read_outcome_ = Outcome::kDone;
  run(20);
  EXPECT_GT(transfers_.size(), tried) << "it is not asked again";
}

// It does not fail, it takes seconds.
TEST_F(Tiers, a_disk_of_slow_reads_is_left_alone_for_a_while) {
  make(capacity(40, 400), kv::DiskWrites::kAll);
  const Answer first = run(1);
  for (uint64_t other = 2; other < 12; ++other) run(other);
  transfer_ns_ = 400'000'000;
  EXPECT_EQ(run(1).tokens, first.tokens);
  EXPECT_EQ(disk().errors, 0);
  EXPECT_EQ(disk().times_off, 1);
  const size_t tried = transfers_.size();
  for (uint64_t other = 2; other < 8; ++other) run(other);
  EXPECT_EQ(transfers_.size(), tried);
  now_ns_ += 31'000'000'000;
  transfer_ns_ = 1'000;
  run(20);
  EXPECT_GT(transfers_.size(), tried) << "it is not asked again";
  for (uint64_t other = 2; other < 12; ++other) run(other);
  EXPECT_EQ(disk().times_off, 1) << "one slow time is held against it for ever";
}

TEST_F(Tiers, the_slowest_disk_is_left_alone_too) {
  make(capacity(40, 400), kv::DiskWrites::kAll);
  const Answer first = run(1);
  for (uint64_t other = 2; other < 12; ++other) run(other);
  transfer_ns_ = 11'000'000'000;  // each takes longer than what is watched
  one_after_the_other_ = true;
  EXPECT_EQ(run(1).tokens, first.tokens);
  EXPECT_GE(disk().times_off, 1);
}

// A file system that became read-only under it: reads go on, and nobody waits for a write.
TEST_F(Tiers, a_disk_that_can_only_be_read_ends_nothing) {
  make(capacity(40, 400), kv::DiskWrites::kAll);
  const Answer first = run(1);
  for (uint64_t other = 2; other < 12; ++other) run(other);
  write_outcome_ = Outcome::kFailed;
  for (uint64_t other = 20; other < 30; ++other) run(other);
  EXPECT_GE(disk().times_off, 1);
  EXPECT_EQ(run(1).tokens, first.tokens);
  now_ns_ += 31'000'000'000;
  write_outcome_ = Outcome::kDone;
  const int64_t written = disk().blocks_written;
  for (uint64_t other = 30; other < 34; ++other) run(other);
  EXPECT_GT(disk().blocks_written, written) << "it is not written to again";
}

// Of two blocks of a window that lie on the disk, the one of a prefix checkpoint stays, though the
// other one was of use later.
TEST(DiskTier, what_one_prompt_ended_with_makes_room_for_checkpoints) {
  kv::BlockPools pools({.groups = {{{.name = "window", .sliding_window = 8}, {8, 8, 2}}}});
  DiskTier tier(pools);
  kv::BlockPool& host = pools.pool(0, kv::kHost);
  kv::BlockPool& disk = pools.pool(0, kv::kDisk);
  using Priority = kv::BlockPool::EvictionPriority;
  const auto name = [](uint64_t number) { return kv::BlockHash{.low = number, .high = 1}; };
  const auto put = [&](uint64_t number, Priority priority) {
    if (host.find(name(number)) == kv::kNoBlock) {
      std::vector<BlockId> taken;
      ASSERT_TRUE(host.take(1, taken));
      host.cache(taken.front(), name(number), Priority::kLast);
      host.give_back(taken);
    }
    tier.want({.group = 0, .name = name(number), .owner = 0, .priority = priority});
    tier.begin_writes(0);
    for (const kv::BlockTransfer& one : tier.take_begun()) tier.finish({.id = one.id}, 0);
  };
  put(1, Priority::kLast);
  put(2, Priority::kFirst);
  put(2, Priority::kFirst);  // again: it is touched
  put(3, Priority::kLast);
  EXPECT_NE(disk.find(name(1)), kv::kNoBlock) << "the checkpoint's made room";
  EXPECT_EQ(disk.find(name(2)), kv::kNoBlock);
  EXPECT_NE(disk.find(name(3)), kv::kNoBlock);
}

TEST_F(Tiers, a_full_disk_is_still_read) {
  make(capacity(40, 400), kv::DiskWrites::kAll);
  run(1);
  for (uint64_t other = 2; other < 12; ++other) run(other);
  write_outcome_ = Outcome::kFull;
  run(20);
  EXPECT_GT(disk().errors, 0);
  EXPECT_GE(run(1).end.cached_by_tier[kv::kDisk], 56);
}

TEST_F(Tiers, what_is_sooner_computed_is_not_loaded) {
  ExecutorCapacity known = capacity(40, 400);
  for (kv::GroupCapacity& group : known.groups) group.spec.block_bytes = 1000;
  make(known, kv::DiskWrites::kAll);
  step_ns_ = 64'000;             // a microsecond a token
  transfer_ns_ = 1'000'000'000;  // a second a block
  const Answer first = run(1);
  for (uint64_t other = 2; other < 12; ++other) run(other);
  const Answer again = run(1);
  EXPECT_EQ(again.tokens, first.tokens);
  EXPECT_EQ(again.end.cached_by_tier[kv::kDisk], 0);
  EXPECT_GE(disk().loads_declined, 1);
  EXPECT_EQ(disk().loads, 0);
  // It is asked now and then whether it is faster by now.
  transfer_ns_ = 1000;
  for (int i = 0; i < 60 && disk().loads == 0; ++i) {
    now_ns_ += 1'100'000'000;
    for (uint64_t other = 2; other < 12; ++other) run(other);
    run(1);
  }
  EXPECT_GT(disk().loads, 0) << "once slow, never asked again";
}

TEST_F(Tiers, nobody_waits_long_for_a_disk) {
  make(capacity(40, 400), kv::DiskWrites::kAll);
  const Answer first = run(1);
  for (uint64_t other = 2; other < 12; ++other) run(other);
  holds_results_ = true;
  const int64_t asked_ns = now_ns_;
  const Answer again = run(1);
  EXPECT_EQ(again.tokens, first.tokens);
  EXPECT_EQ(again.end.cached_by_tier[kv::kDisk], 0);
  EXPECT_LT(now_ns_ - asked_ns, 100'000'000);
  EXPECT_EQ(disk().loads_late, 1);
  holds_results_ = false;
  turn();
}

TEST_F(Tiers, another_tenant_finds_nothing_in_any_tier) {
  make(capacity(40, 400), kv::DiskWrites::kAll);
  run(1, "a", "a");
  EXPECT_EQ(run(1, "b", "b").end.cached_tokens, 0);
  for (uint64_t other = 2; other < 5; ++other) run(other, "a", "a");
  EXPECT_EQ(run(1, "c", "c").end.cached_tokens, 0) << "on the host";
  for (uint64_t other = 5; other < 16; ++other) run(other, "a", "a");
  EXPECT_EQ(run(1, "d", "d").end.cached_tokens, 0) << "on the disk";
  EXPECT_GE(run(1, "a", "a").end.cached_by_tier[kv::kDisk], 56);
  for (const kv::BlockTransfer& what : transfers_) {
    EXPECT_TRUE(what.direction == Direction::kRead || what.owner != 0u);
  }
}

TEST_F(Tiers, a_reset_forgets_every_tier) {
  make(capacity(40, 400), kv::DiskWrites::kAll);
  const Answer first = run(1);
  for (uint64_t other = 2; other < 12; ++other) run(other);
  run(20);  // on the device, the host and the disk by now
  scheduler_->reset_prefix_cache();
  scheduler_->check_integrity();
  EXPECT_EQ(run(20).end.cached_tokens, 0);
  const Answer again = run(1);
  EXPECT_EQ(again.end.cached_tokens, 0);
  EXPECT_EQ(again.tokens, first.tokens);
}

TEST_F(Tiers, what_is_on_its_way_when_all_is_forgotten_is_not_found) {
  make(capacity(40, 400), kv::DiskWrites::kAll);
  holds_results_ = true;
  run(1);
  for (int i = 0; i < 20; ++i) {  // copies for the disk, and writes that do not end
    StepPlan plan = scheduler_->plan(now_ns_);
    executor_->disk()->begin(scheduler_->take_transfers());
    if (plan.empty()) continue;
    executor_->submit(std::move(plan));
    scheduler_->commit(executor_->collect());
  }
  ASSERT_GT(transfers_.size(), 0u);
  scheduler_->reset_prefix_cache();
  holds_results_ = false;
  turn();
  EXPECT_EQ(scheduler_->pools().pool(0, kv::kDisk).cached_count(), 0);
  EXPECT_EQ(run(1).end.cached_tokens, 0);
}

// Handed over behind an erase it would be numbered, and believed at the next start, as newer.
TEST_F(Tiers, a_write_that_waits_for_its_step_is_not_handed_over_behind_an_erase) {
  make(capacity(40, 400), kv::DiskWrites::kSelective);
  run(1, "a", "acme");
  for (uint64_t other = 2; other < 5; ++other) run(other);
  // What is found on the host is wanted on the disk.
  ASSERT_TRUE(scheduler_->submit(request_of(1, "a", "acme")).ok());
  bool has_dropped = false;
  for (int i = 0; i < 20 && !has_dropped; ++i) {
    StepPlan plan = scheduler_->plan(now_ns_ += 1'000'000);
    const int64_t dropped = disk().writes_dropped;
    scheduler_->erase_tenant("acme");
    has_dropped = disk().writes_dropped > dropped;
    for (const kv::BlockTransfer& what : scheduler_->take_transfers()) {
      EXPECT_NE(what.direction, Direction::kWrite);
    }
    scheduler_->check_integrity();
    if (plan.empty()) continue;
    executor_->submit(std::move(plan));
    scheduler_->commit(executor_->collect());
  }
  EXPECT_TRUE(has_dropped);
}

TEST_F(Tiers, a_pinned_prompt_keeps_its_owner) {
  make(capacity(40, 0), kv::DiskWrites::kSelective);
  request::GenerationRequest request = request_of(1, "", "acme");
  request.pin_prefix = true;
  ASSERT_TRUE(scheduler_->submit(std::move(request)).ok());
  turn();
  scheduler_->reset_prefix_cache();
  EXPECT_EQ(run(1, "", "acme", 72).end.cached_by_tier[kv::kDevice], 64);
  scheduler_->erase_tenant("acme");
  scheduler_->check_integrity();
  EXPECT_EQ(run(1, "", "acme", 72).end.cached_tokens, 0);
}

TEST_F(Tiers, a_pinned_prompt_stays) {
  make(capacity(40, 0), kv::DiskWrites::kSelective);
  request::GenerationRequest request = request_of(1);
  request.pin_prefix = true;
  ASSERT_TRUE(scheduler_->submit(std::move(request)).ok());
  turn();
  scheduler_->reset_prefix_cache();
  EXPECT_EQ(run(1, "", "", 72).end.cached_by_tier[kv::kDevice], 64);
  EXPECT_EQ(run(2).end.cached_tokens, 0);
}

// Whoever asked for it left in the step that would have pinned it, or just behind that.
TEST_F(Tiers, what_is_unpinned_while_it_is_computed_is_not_pinned) {
  make(capacity(40, 0), kv::DiskWrites::kSelective);
  for (const bool is_early : {true, false}) {
    request::GenerationRequest request = request_of(1);
    request.id = "prefix-1";
    request.pin_prefix = true;
    ASSERT_TRUE(scheduler_->submit(std::move(request)).ok());
    StepPlan plan = scheduler_->plan(now_ns_ += 1'000'000);
    executor_->submit(std::move(plan));
    if (is_early) scheduler_->unpin("prefix-1");
    scheduler_->commit(executor_->collect());
    const auto prefixes = scheduler_->ledger().prefixes;
    EXPECT_EQ(prefixes == nullptr || prefixes->empty(), is_early);
    if (!is_early) scheduler_->unpin("prefix-1");
    turn();
    const auto left = scheduler_->ledger().prefixes;
    EXPECT_TRUE(left == nullptr || left->empty());
    scheduler_->reset_prefix_cache();
  }
}

// However many are asked for at once.
TEST_F(Tiers, no_more_than_64_are_pinned) {
  ExecutorCapacity many = capacity(0, 0);
  for (kv::GroupCapacity& group : many.groups) group.block_counts[kv::kDevice] = 400;
  make(many, kv::DiskWrites::kSelective);
  int pinned = 0;
  for (uint64_t i = 1; i <= 70; ++i) {
    request::GenerationRequest request = request_of(i, "", "", 16);
    request.pin_prefix = true;
    ASSERT_TRUE(scheduler_->submit(std::move(request)).ok());
  }
  while (!scheduler_->idle()) {
    StepPlan plan = scheduler_->plan(now_ns_ += 1'000'000);
    if (!plan.empty()) {
      executor_->submit(std::move(plan));
      scheduler_->commit(executor_->collect());
    }
    scheduler_->check_integrity();
    scheduler_->take_events(events_);
    for (Scheduler::Event& event : events_) {
      if (event.end) pinned += event.end->pinned_tokens > 0 ? 1 : 0;
    }
  }
  EXPECT_EQ(pinned, 64);
  EXPECT_EQ(scheduler_->ledger().prefixes->size(), 64u);
}

// It is the operator's: erasing those without a name takes what they asked, and not that.
TEST_F(Tiers, what_was_pinned_at_the_start_is_no_tenants) {
  make(capacity(40, 0), kv::DiskWrites::kSelective);
  for (const std::string_view id : {kPinnedAtStart, std::string_view("prefix-1")}) {
    request::GenerationRequest request = request_of(id == kPinnedAtStart ? 1 : 2);
    request.id = id;
    request.pin_prefix = true;
    ASSERT_TRUE(scheduler_->submit(std::move(request)).ok());
    turn();
  }
  scheduler_->erase_tenant("");
  scheduler_->check_integrity();
  ASSERT_EQ(scheduler_->ledger().prefixes->size(), 1u);
  EXPECT_EQ(scheduler_->ledger().prefixes->front().id, kPinnedAtStart);
  EXPECT_EQ(run(1, "", "", 72).end.cached_tokens, 64);
  EXPECT_EQ(run(2, "", "", 72).end.cached_tokens, 0);
}

}  // namespace
}  // namespace pelton::engine
