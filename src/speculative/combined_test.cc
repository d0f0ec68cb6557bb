// Which of several proposers' guesses are taken.
#include "speculative/combined.h"

#include <functional>

#include <gtest/gtest.h>

namespace pelton::speculative {
namespace {

using Tokens = std::vector<TokenId>;

// Guesses what the test says, behind so much matched text.
class Scripted final : public Proposer {
 public:
  explicit Scripted(std::string_view name) : name_(name) {}

  std::string_view name() const override { return name_; }
  void begin(const NewSequence&) override {}
  void append(int, std::span<const TokenId>, size_t) override { ++appended; }
  Result<void> draft(std::span<DraftRequest> requests) override {
    ++asked;
    if (clock != nullptr) clock->advance_ns(takes_ns);
    for (DraftRequest& request : requests) {
      request.guesses = guesses(request);
      request.matched = matched;
    }
    if (fails) return Error{ErrorCode::kInternal, "a proposer that fails"};
    return {};
  }
  int64_t bytes() const override { return 100; }

  std::function<Tokens(const DraftRequest&)> guesses = [](const DraftRequest&) { return Tokens{}; };
  int matched = 0;
  bool fails = false;
  base::VirtualClock* clock = nullptr;
  int64_t takes_ns = 0;
  int asked = 0;
  int appended = 0;

 private:
  const std::string_view name_;
};

std::function<Tokens(const DraftRequest&)> always(const Tokens& tokens) {
  return [tokens](const DraftRequest&) { return tokens; };
}

class CombinedTest : public testing::Test {
 protected:
  void make(Combined::Rule rule, bool with_weights) {
    std::vector<Combined::Part> parts = {{first_, false}, {second_, with_weights}};
    combined_ = std::make_unique<Combined>(
        Combined::Options{.name = "both", .rule = rule, .slot_count = 2}, std::move(parts), clock_);
    combined_->begin({.slot = 0});
    combined_->begin({.slot = 1});
  }

  DraftRequest ask(int slot, int most = 4) {
    const Tokens tokens = {1, 2, 3};
    DraftRequest request{.slot = slot, .tokens = tokens, .tokens_max = most};
    EXPECT_TRUE(combined_->draft({&request, 1}).ok());
    return request;
  }

  // A step: whose guesses it took, and what was emitted.
  int step(int slot, const Tokens& emitted) {
    const DraftRequest request = ask(slot);
    clock_.advance_ns(1'000'000);
    Tokens tokens = {1, 2, 3};
    tokens.insert(tokens.end(), emitted.begin(), emitted.end());
    combined_->append(slot, tokens, 3);
    return request.guesses.empty() ? -1 : request.part;
  }

  base::VirtualClock clock_;
  std::shared_ptr<Scripted> first_ = std::make_shared<Scripted>("first");
  std::shared_ptr<Scripted> second_ = std::make_shared<Scripted>("second");
  std::unique_ptr<Combined> combined_;
};

TEST_F(CombinedTest, a_long_match_is_taken_first) {
  make(Combined::Rule::kLongMatch, true);
  first_->guesses = always({10, 11});
  second_->guesses = always({20, 21, 22});
  first_->matched = Combined::kLongMatch;
  EXPECT_EQ(ask(0).guesses, (Tokens{10, 11}));
  EXPECT_EQ(second_->asked, 0);
  first_->matched = Combined::kLongMatch - 1;
  const DraftRequest request = ask(0);
  EXPECT_EQ(request.guesses, (Tokens{20, 21, 22}));
  EXPECT_EQ(request.part, 1);
  second_->guesses = always({});  // a short match is better than nothing
  EXPECT_EQ(ask(0).guesses, (Tokens{10, 11}));
}

TEST_F(CombinedTest, each_sequence_has_who_serves_it_best) {
  make(Combined::Rule::kBest, false);
  first_->guesses = always({10, 11, 12});
  second_->guesses = always({20, 21, 22});
  first_->matched = second_->matched = 3;
  for (int i = 0; i < 60; ++i) {
    (void)step(0, {10, 11, 12, 13});
    (void)step(1, {20, 21, 22, 23});
  }
  EXPECT_EQ(step(0, {10}), 0);
  EXPECT_EQ(step(1, {20}), 1);
}

// What was guessed in vain is known without having been computed.
TEST_F(CombinedTest, evidence_is_free) {
  make(Combined::Rule::kBest, false);
  first_->guesses = always({10, 11, 12});
  first_->matched = 3;
  second_->guesses = always({20});
  second_->matched = 3;
  EXPECT_EQ(step(0, {20, 21}), 0);  // three guesses seem more than one
  int turns = 0;
  while (step(0, {20, 21}) == 0) ASSERT_LT(++turns, 40);
  EXPECT_EQ(step(0, {20, 21}), 1);
}

TEST_F(CombinedTest, weights_are_asked_where_they_pay) {
  make(Combined::Rule::kBest, true);
  second_->clock = &clock_;
  second_->guesses = always({20, 21, 22, 23});
  second_->takes_ns = 100'000;  // a tenth of a step
  for (int i = 0; i < 50; ++i) (void)step(0, {20, 21, 22, 23, 24});
  EXPECT_EQ(step(0, {20, 21, 22, 23, 24}), 1);
  // As dear as ten steps: now and then, to see.
  second_->takes_ns = 10'000'000;
  for (int i = 0; i < 200; ++i) (void)step(0, {20, 21, 22, 23, 24});
  const int before = second_->asked;
  for (int i = 0; i < 330; ++i) (void)step(0, {20, 21, 22, 23, 24});
  EXPECT_EQ(second_->asked - before, 10);
}

TEST_F(CombinedTest, who_fails_has_no_guess) {
  make(Combined::Rule::kBest, true);
  first_->guesses = always({10});
  first_->matched = 8;
  second_->guesses = always({20, 21, 22, 23});
  second_->fails = true;
  EXPECT_EQ(ask(0).guesses, Tokens{10});
  first_->fails = true;
  EXPECT_EQ(ask(0).guesses, Tokens{});
}

TEST_F(CombinedTest, all_hear_of_everything) {
  make(Combined::Rule::kBest, true);
  (void)step(0, {5});
  EXPECT_EQ(first_->appended, 1);
  EXPECT_EQ(second_->appended, 1);
  EXPECT_EQ(combined_->bytes(), 200);
  EXPECT_EQ(combined_->part_names(), (std::vector<std::string_view>{"first", "second"}));
}

}  // namespace
}  // namespace pelton::speculative
