// What a guide says is the same whether its work is done at once or beside the steps.
#include "executor/guide_work.h"

#include <chrono>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "grammar/ebnf.h"

namespace pelton::executor {
namespace {

using State = GuideFollower::State;
using Segment = grammar::GrammarFsm::Segment;

constexpr TokenId kEnd = 262;

const std::shared_ptr<const grammar::TokenTrie>& small_trie() {
  static const auto kTrie = [] {
    std::vector<std::string> texts;
    for (int byte = 0; byte < 256; ++byte) texts.push_back(std::string(1, static_cast<char>(byte)));
    for (const char* more : {"ab", "ba", "aa", "abab", "aaaaaaaa", " a"}) texts.emplace_back(more);
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    return std::make_shared<const grammar::TokenTrie>(views);
  }();
  return kTrie;
}

grammar::GrammarState guide_of(std::string_view text) {
  auto grammar =
      grammar::TokenGrammar::make(grammar::compile_ebnf(text).value(), small_trie()).value();
  grammar::GrammarFsm::Parts parts{.trie = small_trie(), .vocab_size = kEnd + 1};
  parts.segments.push_back({Segment::Text::kGrammar, std::move(grammar), {{kEnd, {}}}});
  parts.starts = {0};
  return grammar::GrammarState(std::make_shared<const grammar::GrammarFsm>(std::move(parts)));
}

// Until it is known or has failed.
State find_allowed(GuideFollower& follower, const GuideFollower::Grant& grant) {
  for (;;) {
    const State state = follower.find_allowed(grant);
    if (state != State::kLater) return state;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

TEST(GuideWork, D1_WorkBesideTheStepsSaysTheSame) {
  GuideThreads threads(1);
  const GuideFollower::Grant at_once{.threads = threads, .work_max = INT64_MAX, .mask_words = 6};
  const GuideFollower::Grant beside{.threads = threads, .work_max = 0, .mask_words = 6};
  for (const char* const text :
       {"root ::= (\"ab\" | \"c\" [0-9] | \"(\" root \")\" | \"zababc1ababc1\"){6,12}",
        "root ::= w\nw ::= [a-b ] | w w", "root ::= \"only this\""}) {
    SCOPED_TRACE(text);
    std::mt19937 random(11);
    GuideFollower one, other;
    one.begin(guide_of(text), {}, "a");
    other.begin(guide_of(text), {}, "b");
    std::vector<TokenId> all;
    while (!one.over() && all.size() < 60) {
      ASSERT_EQ(find_allowed(one, at_once), State::kKnown);
      ASSERT_EQ(find_allowed(other, beside), State::kKnown);
      ASSERT_TRUE(std::equal(one.allowed().begin(), one.allowed().end(), other.allowed().begin(),
                             other.allowed().end()));
      ASSERT_EQ(one.allowed().size(), 6u);  // as wide as was asked for
      TokenId token = static_cast<TokenId>(random() % (kEnd + 1));
      while (!grammar::may_be(one.allowed(), token)) token = (token + 1) % (kEnd + 1);
      ASSERT_EQ(one.accept(token, 4, at_once), State::kKnown);
      // Only an end costs nothing.
      ASSERT_EQ(other.accept(token, 4, beside), token == kEnd ? State::kKnown : State::kLater);
      ASSERT_EQ(find_allowed(other, beside), State::kKnown);
      all.push_back(token);
      const std::vector<TokenId> forced = one.take_forced();
      ASSERT_EQ(other.take_forced(), forced);
      all.insert(all.end(), forced.begin(), forced.end());
    }
    // Again from where it was, as after a preemption.
    GuideFollower again;
    again.begin(guide_of(text), all, "a");
    const bool over = one.over();
    ASSERT_EQ(find_allowed(again, beside), State::kKnown);
    ASSERT_EQ(find_allowed(one, at_once), State::kKnown);
    EXPECT_EQ(again.over(), over);
    EXPECT_TRUE(std::equal(one.allowed().begin(), one.allowed().end(), again.allowed().begin(),
                           again.allowed().end()));
  }
}

// Too much work, or a token that may not come: the request's own error, and none of the server's.
TEST(GuideWork, D7_FailuresAreTheRequestsOwn) {
  GuideThreads threads(1);
  const GuideFollower::Grant grant{.threads = threads, .work_max = 40'000, .mask_words = 5};
  GuideFollower follower;
  follower.begin(guide_of("root ::= \"ab\""), std::vector<TokenId>{'x'}, "");
  EXPECT_EQ(find_allowed(follower, grant), State::kFailed);
  EXPECT_EQ(follower.error().code, ErrorCode::kUnsupported);

  follower.begin(guide_of("root ::= w\nw ::= [a-b ] | w w | w w w | w w w w"), {}, "");
  State state = State::kKnown;
  for (int i = 0; i < 4000 && state == State::kKnown; ++i) {
    state = find_allowed(follower, grant);
    if (state != State::kKnown) break;
    state = follower.accept('a' + i % 2, 0, grant);
    if (state == State::kLater) state = find_allowed(follower, grant);
  }
  EXPECT_EQ(state, State::kFailed);
  EXPECT_EQ(follower.error().code, ErrorCode::kUnsupported);
}

// Going over a whole answer again, as after a preemption, is done in turns with what others want:
// each goes on where the one before it stopped.
TEST(GuideWork, D1_AReplayIsDoneInTurns) {
  GuideTask whole(guide_of("root ::= w\nw ::= [a-b ] | w w | w w w"));
  whole.tokens.assign(60, 'a');
  whole.forced_max = 4;
  whole.wants_mask = true;
  GuideTask slices = whole;
  ASSERT_EQ(whole.run(INT64_MAX, nullptr), GuideTask::Status::kDone);
  const int64_t slice = whole.work / 4;
  int turns = 0;
  GuideTask::Status status = GuideTask::Status::kGivenUp;
  for (; status == GuideTask::Status::kGivenUp && turns < 100; ++turns) {
    const int64_t before = slices.work;
    status = slices.run(slice, nullptr);
    EXPECT_LE(slices.work - before, slice + slice / 2);
  }
  ASSERT_EQ(status, GuideTask::Status::kDone);
  EXPECT_GE(turns, 3);
  EXPECT_TRUE(std::equal(whole.allowed.begin(), whole.allowed.end(), slices.allowed.begin(),
                         slices.allowed.end()));
  EXPECT_EQ(whole.forced, slices.forced);
}

// Whoever leaves does not wait for the work that was under way, and no thread goes on with it.
TEST(GuideWork, D1_LeavingEndsTheWork) {
  GuideFollower follower;
  {
    GuideThreads threads(2);
    const GuideFollower::Grant grant{.threads = threads, .work_max = 0, .mask_words = 5};
    for (int i = 0; i < 20; ++i) {
      follower.begin(guide_of("root ::= w\nw ::= [a-b ] | w w | w w w"),
                     std::vector<TokenId>(static_cast<size_t>(50 + i), 'a'), std::to_string(i % 3));
      EXPECT_EQ(follower.find_allowed(grant), State::kLater);
    }
    EXPECT_EQ(find_allowed(follower, grant), State::kKnown);
  }
  follower.clear();
}

}  // namespace
}  // namespace pelton::executor
