// Prefixes that another worker has computed: two engines without threads, the test being the way
// between them. Modelled executors check that what a block holds is what its sequence has there.
#include "engine/peer_tier.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/modelled_executor.h"
#include "engine/scheduler.h"

namespace pelton::engine {
namespace {

using Outcome = kv::PeerFetched::Outcome;

constexpr int kBlockTokens = 4;

ExecutorCapacity capacity(int device = 60, int batch_tokens = 64) {
  return {.block_tokens = kBlockTokens,
          .groups = {{{.name = "full", .block_bytes = 100}, {device, 100, 0}},
                     {{.name = "window", .sliding_window = 10, .block_bytes = 50}, {40, 100, 0}}},
          .sequences_max = 2,
          .batch_tokens_max = batch_tokens,
          .context_tokens_max = 160};
}

class Worker {
 public:
  explicit Worker(const ExecutorCapacity& has)
      : scheduler(has, Scheduler::Options{.hash_seed = 1}),
        executor({.capacity = has, .next_token = checksum_tokens(1000)}) {
    scheduler.turn_on_peers();
  }

  SequenceId submit(uint64_t prompt, int expected, int length = 64, bool ahead = false) {
    request::GenerationRequest request;
    for (int i = 0; i < length; ++i) {
      request.prompt.push_back(
          static_cast<TokenId>(base::random_bits(prompt, static_cast<uint64_t>(i)) % 1000));
    }
    request.stop.max_new_tokens = 4;
    request.cache_salt = salt;
    if (expected > 0) {
      request.peer = request::PrefixPeer{
          .host = "h", .port = 1, .tokens = expected, .ticket = "ticket", .ahead = ahead};
    }
    Result<SequenceId> id = scheduler.submit(std::move(request));
    CHECK(id.ok());
    return *id;
  }

  // One step.
  void turn() {
    StepPlan plan = scheduler.plan(now_ns += 1'000'000);
    for (kv::PeerFetch& fetch : scheduler.take_peer_fetches()) fetches.push_back(std::move(fetch));
    for (const int64_t id : scheduler.take_peer_cancels()) cancelled.push_back(id);
    if (!plan.empty()) {
      executor.submit(std::move(plan));
      StepResult result = executor.collect();
      result.elapsed_ns = step_ns;
      scheduler.commit(std::move(result));
    }
    scheduler.check_integrity();
    std::vector<Scheduler::Event> events;
    scheduler.take_events(events);
    for (Scheduler::Event& event : events) {
      if (event.token) tokens.push_back(event.token->token);
      if (event.end) ends.push_back(*event.end);
    }
  }
  void finish() {
    for (int i = 0; i < 1'000 && !scheduler.idle(); ++i) turn();
    EXPECT_TRUE(scheduler.idle());
  }
  std::vector<TokenId> said() { return std::exchange(tokens, {}); }
  const PeerTier::Counters& counters() const { return scheduler.peer_tier().counters(); }

  std::string salt;
  Scheduler scheduler;
  ModelledExecutor executor;
  std::vector<kv::PeerFetch> fetches;
  std::vector<int64_t> cancelled;
  std::vector<TokenId> tokens;
  std::vector<StreamEnd> ends;
  int64_t now_ns = 0;
  int64_t step_ns = 0;
};

class PeerTierTest : public testing::Test {
 protected:
  // What the source answers to a fetch, carried over as far as `most` blocks.
  kv::PeerFetched carry(const kv::PeerFetch& fetch, size_t most = 1'000) {
    const kv::PeerOffer offer =
        source_.scheduler.offer({.id = ++asks_, .names = fetch.names, .held = fetch.held}, 0);
    source_.scheduler.check_integrity();
    kv::PeerFetched fetched{.id = fetch.id, .blocks = {}};
    kv::PerGroup<std::vector<kv::BlockId>> rooms = fetch.rooms;
    for (const kv::PeerOffer::Block& block : offer.blocks) {
      if (fetched.blocks.size() == most) break;
      std::vector<kv::BlockId>& free = rooms[block.group];
      CHECK(!free.empty(), "more than there is room for");
      target_.executor.take_over(source_.executor, block, free.back());
      fetched.blocks.push_back({.group = block.group, .host = free.back(), .name = block.name});
      free.pop_back();
      fetched.bytes += block.group == 0 ? 100 : 50;
    }
    offered_ = offer;
    source_.scheduler.end_offer(offer.id);
    source_.scheduler.check_integrity();
    return fetched;
  }
  // Of a prompt that the source has computed.
  std::vector<TokenId> computed_at_source(uint64_t prompt) {
    source_.submit(prompt, 0);
    source_.finish();
    return source_.said();
  }
  void finish_target() {
    target_.finish();
    EXPECT_TRUE(target_.scheduler.ledger().clean());
    EXPECT_TRUE(source_.scheduler.ledger().clean());
  }

  Worker source_{capacity()};
  Worker target_{capacity()};
  kv::PeerOffer offered_;
  int64_t asks_ = 0;
};

TEST_F(PeerTierTest, WhatAPeerHasIsNotComputed) {
  const std::vector<TokenId> alone = computed_at_source(1);
  target_.submit(1, 60);
  target_.turn();
  ASSERT_EQ(target_.fetches.size(), 1u);
  EXPECT_TRUE(target_.tokens.empty()) << "it waits";
  const kv::PeerFetch& fetch = target_.fetches.front();
  EXPECT_EQ(fetch.names.size(), 15u);
  EXPECT_EQ(fetch.rooms[0].size(), 15u);
  EXPECT_EQ(fetch.rooms[1].size(), 3u) << "of the window its last blocks only";
  target_.scheduler.finish_peer_fetch(carry(fetch), target_.now_ns);
  EXPECT_EQ(offered_.blocks.size(), 18u);
  finish_target();
  EXPECT_EQ(target_.said(), alone);
  ASSERT_EQ(target_.ends.size(), 1u);
  EXPECT_EQ(target_.ends.front().cached_tokens, 60);
  EXPECT_EQ(target_.ends.front().cached_from_peer, 60);
  EXPECT_EQ(target_.ends.front().cached_by_tier[kv::kHost], 0);
  EXPECT_EQ(target_.scheduler.counters().prompt_tokens_from_peers, 60);
  EXPECT_EQ(target_.counters().blocks_fetched, 18);
  // From now on it has them itself.
  target_.submit(1, 60);
  finish_target();
  EXPECT_EQ(target_.counters().fetches, 1);
  EXPECT_EQ(target_.said(), alone);
}

TEST_F(PeerTierTest, APartIsOfUseAndTheRestIsComputed) {
  const std::vector<TokenId> alone = computed_at_source(1);
  for (const size_t most : {size_t{0}, size_t{1}, size_t{7}, size_t{17}}) {
    target_.scheduler.reset_prefix_cache();
    target_.submit(1, 60);
    target_.turn();
    ASSERT_FALSE(target_.fetches.empty());
    target_.scheduler.finish_peer_fetch(carry(target_.fetches.back(), most), target_.now_ns);
    finish_target();
    EXPECT_EQ(target_.said(), alone) << most;
  }
}

// Of a transfer that ends with a damaged block, whichever that is: nothing of it is believed, what
// came before is of use.
TEST_F(PeerTierTest, WhatComesDamagedIsCountedAndComputed) {
  const std::vector<TokenId> alone = computed_at_source(1);
  constexpr int kAll = 18;
  for (int before = 0; before < kAll; ++before) {
    target_.scheduler.reset_prefix_cache();
    target_.now_ns += 20'000'000'000;  // after three it would be left alone
    target_.turn();                    // its clock is the plan's
    target_.submit(1, 60);
    target_.turn();
    ASSERT_EQ(std::ssize(target_.fetches), before + 1);
    kv::PeerFetched fetched = carry(target_.fetches.back(), static_cast<size_t>(before));
    fetched.outcome = Outcome::kCorrupt;
    target_.scheduler.finish_peer_fetch(fetched, target_.now_ns);
    finish_target();
    EXPECT_EQ(target_.said(), alone) << before;
    EXPECT_EQ(target_.counters().corrupt, before + 1);
    ASSERT_EQ(std::ssize(target_.ends), before + 1);
    EXPECT_LT(target_.ends.back().cached_from_peer, 60) << before;
  }
}

TEST_F(PeerTierTest, WhatTheSourceHasLostMeanwhileIsComputed) {
  const std::vector<TokenId> alone = computed_at_source(1);
  source_.scheduler.reset_prefix_cache();
  target_.submit(1, 60);
  target_.turn();
  ASSERT_EQ(target_.fetches.size(), 1u);
  kv::PeerFetched nothing = carry(target_.fetches.front());
  EXPECT_TRUE(nothing.blocks.empty());
  nothing.outcome = Outcome::kNothing;
  target_.scheduler.finish_peer_fetch(nothing, target_.now_ns);
  finish_target();
  EXPECT_EQ(target_.said(), alone);
  EXPECT_EQ(target_.counters().nothing, 1);
  EXPECT_EQ(target_.ends.front().cached_from_peer, 0);
}

TEST_F(PeerTierTest, APeerThatIsLateIsNotWaitedFor) {
  const std::vector<TokenId> alone = computed_at_source(1);
  target_.submit(1, 60);
  for (int i = 0; i < 200 && target_.ends.empty(); ++i) target_.turn();
  EXPECT_EQ(target_.said(), alone);
  EXPECT_EQ(target_.counters().late, 1);
  ASSERT_EQ(target_.cancelled.size(), 1u);
  EXPECT_FALSE(target_.scheduler.idle()) << "its rooms are not free before it says so";
  kv::PeerFetched late = carry(target_.fetches.front());
  late.outcome = Outcome::kCancelled;
  target_.scheduler.finish_peer_fetch(late, target_.now_ns);
  finish_target();
}

TEST_F(PeerTierTest, TheSamePrefixIsFetchedOnceForAllWhoAsk) {
  const std::vector<TokenId> alone = computed_at_source(1);
  for (int i = 0; i < 100; ++i) target_.submit(1, 60);
  target_.turn();
  ASSERT_EQ(target_.fetches.size(), 1u);
  EXPECT_EQ(target_.counters().joined, 99);
  target_.scheduler.finish_peer_fetch(carry(target_.fetches.front()), target_.now_ns);
  finish_target();
  EXPECT_EQ(target_.ends.size(), 100u);
  for (const StreamEnd& end : target_.ends) EXPECT_EQ(end.cached_tokens, 60);
  EXPECT_EQ(target_.tokens.size(), 400u);
}

// Its gateway takes it for being here by now.
TEST_F(PeerTierTest, WhoComesWithoutATicketWaitsForWhatIsOnItsWay) {
  const std::vector<TokenId> alone = computed_at_source(1);
  target_.submit(1, 60);
  for (int i = 0; i < 20; ++i) target_.submit(1, 0);
  target_.submit(2, 0);  // has nothing in common
  target_.turn();
  ASSERT_EQ(target_.fetches.size(), 1u);
  EXPECT_EQ(target_.counters().joined, 20);
  target_.scheduler.finish_peer_fetch(carry(target_.fetches.front()), target_.now_ns);
  finish_target();
  ASSERT_EQ(target_.ends.size(), 22u);
  EXPECT_EQ(std::ranges::count(target_.ends, 60, &StreamEnd::cached_tokens), 21);
}

TEST_F(PeerTierTest, WhoLeavesWhileItIsFetchedHoldsNothing) {
  computed_at_source(1);
  const SequenceId id = target_.submit(1, 60);
  target_.turn();
  target_.scheduler.cancel(id);
  target_.turn();
  EXPECT_EQ(target_.cancelled.size(), 1u);
  target_.scheduler.finish_peer_fetch(carry(target_.fetches.front()), target_.now_ns);
  finish_target();
}

TEST_F(PeerTierTest, WhatWasForgottenMeanwhileIsNotListed) {
  computed_at_source(1);
  target_.submit(1, 60);
  target_.turn();
  target_.scheduler.reset_prefix_cache();
  target_.scheduler.finish_peer_fetch(carry(target_.fetches.front()), target_.now_ns);
  finish_target();
  EXPECT_EQ(target_.ends.front().cached_tokens, 0);
}

TEST_F(PeerTierTest, AnotherSaltHasNothingInCommon) {
  computed_at_source(1);
  target_.salt = "b";
  target_.submit(1, 60);
  target_.turn();
  ASSERT_EQ(target_.fetches.size(), 1u);
  EXPECT_TRUE(carry(target_.fetches.front()).blocks.empty());
  target_.scheduler.finish_peer_fetch({.id = target_.fetches.front().id, .blocks = {}},
                                      target_.now_ns);
  finish_target();
}

TEST_F(PeerTierTest, WhereComputingIsQuickerItIsComputed) {
  computed_at_source(1);
  target_.step_ns = 64;  // a nanosecond a token
  target_.submit(1, 60);
  target_.turn();
  kv::PeerFetched slow = carry(target_.fetches.front());
  slow.ns = 1'000'000'000;
  target_.scheduler.finish_peer_fetch(slow, target_.now_ns);
  target_.submit(2, 0);  // what computing takes is known by then
  finish_target();
  computed_at_source(3);
  target_.submit(3, 60);
  finish_target();
  EXPECT_EQ(target_.counters().fetches, 1);
  EXPECT_EQ(target_.counters().declined, 1);
}

// Nobody waits for it to the end: what came until then says how slow it is, as does nothing.
class PeerLinkTest : public PeerTierTest, public testing::WithParamInterface<size_t> {};

TEST_P(PeerLinkTest, OneThatIsNeverWaitedForIsKnownToBeSlow) {
  computed_at_source(1);
  target_.step_ns = 64;  // a nanosecond a token
  target_.submit(1, 60);
  for (int i = 0; i < 200 && target_.ends.empty(); ++i) target_.turn();
  ASSERT_EQ(target_.cancelled.size(), 1u);
  kv::PeerFetched given_up = carry(target_.fetches.front(), GetParam());
  given_up.outcome = Outcome::kCancelled;
  given_up.ns = 1'000'000'000;
  target_.scheduler.finish_peer_fetch(given_up, target_.now_ns);
  target_.submit(2, 0);  // what computing takes is known by then
  finish_target();
  computed_at_source(3);
  target_.submit(3, 60);
  finish_target();
  EXPECT_EQ(target_.counters().fetches, 1);
  EXPECT_EQ(target_.counters().declined, 1);
}

INSTANTIATE_TEST_SUITE_P(Came, PeerLinkTest, testing::Values(size_t{3}, size_t{0}));

TEST_F(PeerTierTest, APeerThatFailsAgainAndAgainIsLeftAloneForAWhile) {
  for (uint64_t prompt = 0; prompt < 5; ++prompt) {
    target_.submit(prompt, 60);
    target_.turn();
    if (prompt < 3) {
      target_.scheduler.finish_peer_fetch(
          {.id = target_.fetches.back().id, .outcome = Outcome::kFailed, .blocks = {}},
          target_.now_ns);
    }
    finish_target();
  }
  EXPECT_EQ(target_.counters().fetches, 3);
  EXPECT_EQ(target_.counters().failed, 3);
  EXPECT_EQ(target_.counters().left_alone, 2);
  target_.now_ns += 20'000'000'000;
  target_.turn();  // its clock is the plan's
  target_.submit(9, 60);
  target_.turn();
  EXPECT_EQ(target_.counters().fetches, 4);
  target_.scheduler.finish_peer_fetch(
      {.id = target_.fetches.back().id, .outcome = Outcome::kFailed, .blocks = {}}, target_.now_ns);
  finish_target();
}

// 15 blocks of 29: the rest is for others.
TEST_F(PeerTierTest, WhatTheHostHasNoRoomForIsComputedAndCounted) {
  ExecutorCapacity small = capacity();
  small.groups[0].block_counts[kv::kHost] = 29;
  Worker target(small);
  target.submit(1, 60);
  target.turn();
  EXPECT_EQ(target.counters().no_room, 0);
  ASSERT_EQ(target.fetches.size(), 1u);
  target.submit(2, 60);
  target.turn();
  EXPECT_EQ(target.counters().no_room, 1);
  EXPECT_EQ(target.counters().fetches, 1);
  target.scheduler.finish_peer_fetch(
      {.id = target.fetches.front().id, .outcome = Outcome::kNothing, .blocks = {}}, target.now_ns);
  target.finish();
  EXPECT_TRUE(target.scheduler.ledger().clean());
}

// Prompts that are being computed at the source, 16 tokens a step.
class PeerAheadTest : public testing::Test {
 protected:
  // What the target asks the source for before it is computed.
  void ask() {
    target_.submit(1, 60, 64, /*ahead=*/true);
    target_.turn();
    CHECK(target_.fetches.size() == 1 && target_.fetches.front().ahead);
    fetch_ = target_.fetches.front();
    rooms_ = fetch_.rooms;
    kv::PeerAsk ask{.id = 1, .names = fetch_.names, .held = fetch_.held, .ahead = true};
    take(source_.scheduler.offer(ask, source_.now_ns));
  }
  // The source's next step, and what it offers behind it.
  size_t step() {
    source_.turn();
    const size_t before = fetched_.blocks.size();
    for (const kv::PeerOffer& offer : source_.scheduler.further_offers(source_.now_ns)) take(offer);
    source_.scheduler.check_integrity();
    return fetched_.blocks.size() - before;
  }
  void take(const kv::PeerOffer& offer) {
    goes_on_ = offer.goes_on;
    for (const kv::PeerOffer::Block& block : offer.blocks) {
      std::vector<kv::BlockId>& free = rooms_[block.group];
      CHECK(!free.empty(), "more than there is room for");
      target_.executor.take_over(source_.executor, block, free.back());
      fetched_.blocks.push_back({.group = block.group, .host = free.back(), .name = block.name});
      free.pop_back();
    }
  }
  void end(Outcome outcome = Outcome::kDone) {
    source_.scheduler.end_offer(1);
    fetched_.id = fetch_.id;
    fetched_.outcome = outcome;
    target_.scheduler.finish_peer_fetch(fetched_, target_.now_ns);
  }
  void finish_both() {
    source_.finish();
    target_.finish();
    EXPECT_TRUE(target_.scheduler.ledger().clean());
    EXPECT_TRUE(source_.scheduler.ledger().clean());
  }

  Worker source_{capacity(60, 16)};
  Worker target_{capacity()};
  kv::PeerFetch fetch_;
  kv::PerGroup<std::vector<kv::BlockId>> rooms_;
  kv::PeerFetched fetched_{.id = 0, .blocks = {}};
  bool goes_on_ = false;
};

TEST_F(PeerAheadTest, BlocksComeWithTheStepThatComputesThem) {
  source_.submit(1, 0);
  ask();
  EXPECT_TRUE(goes_on_);
  std::vector<size_t> came;
  for (int i = 0; i < 6 && goes_on_; ++i) came.push_back(step());
  // Four of the full group each; of the window those of its end, and none that slides out.
  EXPECT_EQ(came, (std::vector<size_t>{4, 4, 4, 6}));
  EXPECT_FALSE(goes_on_);
  // Who goes on with the answer waits for the same transfer.
  target_.submit(1, 60);
  target_.turn();
  EXPECT_EQ(target_.counters().joined, 1);
  EXPECT_EQ(target_.fetches.size(), 1u);
  end();
  finish_both();
  EXPECT_EQ(target_.said(), source_.said());
  ASSERT_EQ(target_.ends.size(), 2u);
  EXPECT_EQ(target_.ends.front().output_tokens, 0) << "what only fetches says nothing";
  EXPECT_EQ(target_.ends.back().cached_from_peer, 60);
  EXPECT_EQ(target_.counters().ahead, 1);
}

TEST_F(PeerAheadTest, WhatIsNeverComputedIsNotWaitedFor) {
  ask();
  source_.now_ns += 4'000'000'000;
  EXPECT_EQ(step(), 0u);
  EXPECT_TRUE(goes_on_);
  EXPECT_FALSE(source_.scheduler.idle()) << "it looks again";
  source_.now_ns += 2'000'000'000;
  EXPECT_EQ(step(), 0u);
  EXPECT_FALSE(goes_on_);
  end(Outcome::kNothing);
  finish_both();
}

TEST_F(PeerAheadTest, APartOfThePromptIsOfUseToWhoGoesOn) {
  const SequenceId id = source_.submit(1, 0);
  ask();
  step();
  step();
  source_.scheduler.cancel(id);
  source_.now_ns += 6'000'000'000;
  step();
  EXPECT_FALSE(goes_on_);
  end(Outcome::kFailed);
  finish_both();
  source_.submit(1, 0);
  target_.submit(1, 0);
  finish_both();
  EXPECT_EQ(target_.said(), source_.said());
}

TEST_F(PeerAheadTest, WhoLeavesEndsIt) {
  source_.submit(1, 0);
  const SequenceId before = target_.submit(2, 0);
  ask();
  step();
  target_.scheduler.cancel(before + 1);
  target_.turn();
  EXPECT_EQ(target_.cancelled.size(), 1u);
  end(Outcome::kCancelled);
  finish_both();
}

TEST_F(PeerAheadTest, ItIsForgottenWithTheCache) {
  source_.submit(1, 0);
  ask();
  step();
  source_.scheduler.reset_prefix_cache();
  target_.scheduler.reset_prefix_cache();
  for (int i = 0; i < 8 && goes_on_; ++i) step();
  EXPECT_FALSE(goes_on_);
  end();
  finish_both();
}

// Offered blocks stay as they are while others need room; and go when there is none else.
TEST(PeerOffers, SequencesThatLackBlocksGetThemBack) {
  Worker source{capacity(40)};
  source.submit(1, 0, 128);
  source.finish();
  std::vector<TokenId> first = source.said();
  Worker asking{capacity()};
  asking.submit(1, 124, 128);
  asking.turn();
  ASSERT_EQ(asking.fetches.size(), 1u);
  const kv::PeerFetch& fetch = asking.fetches.front();
  const kv::PeerOffer offer =
      source.scheduler.offer({.id = 1, .names = fetch.names, .held = fetch.held}, 0);
  EXPECT_EQ(offer.prefix_blocks, 31);
  source.submit(2, 0, 128);
  for (int i = 0; i < 10 && !source.scheduler.needs_offered(); ++i) source.turn();
  EXPECT_TRUE(source.scheduler.needs_offered());
  EXPECT_TRUE(source.ends.size() == 1) << "it cannot go on before";
  source.scheduler.end_all_offers();
  source.finish();
  EXPECT_EQ(source.ends.size(), 2u);
  EXPECT_EQ(source.counters().revoked, 1);
  source.scheduler.end_offer(1);  // its transfer says so later
  EXPECT_TRUE(source.scheduler.ledger().clean());
  asking.scheduler.finish_peer_fetch({.id = fetch.id, .outcome = Outcome::kFailed, .blocks = {}},
                                     asking.now_ns);
  asking.finish();
  EXPECT_EQ(asking.said(), first);
}

}  // namespace
}  // namespace pelton::engine
