// Of several one decides, over a store that is played: by real clocks, so nothing here waits for a
// moment that load could pass over, but for one that has to come.
#include "launch/lead.h"

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

namespace pelton::launch {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;

// What all of them see.
struct Shared {
  std::mutex mutex;
  std::string holder;
  uint64_t epoch = 0;
  std::map<std::string, std::string> kept;
  bool is_away = false;  // it does not answer
  nanoseconds left = seconds(60);
};

class PlayedStore final : public LeadStore {
 public:
  explicit PlayedStore(Shared& shared) : shared_(shared) {}
  Result<std::optional<Term>> enter(const std::string& name) override {
    std::lock_guard lock(shared_.mutex);
    if (shared_.is_away) return away();
    if (!shared_.holder.empty()) return std::optional<Term>();
    shared_.holder = name_ = name;
    return std::optional(Term{.epoch = ++shared_.epoch, .left = shared_.left});
  }
  Result<nanoseconds> renew() override {
    std::lock_guard lock(shared_.mutex);
    if (shared_.is_away) return away();
    if (shared_.holder != name_) return Error{ErrorCode::kNotFound, "it is another one's", {}};
    return shared_.left;
  }
  Result<void> give_up() override {
    std::lock_guard lock(shared_.mutex);
    if (!name_.empty() && shared_.holder == name_) shared_.holder.clear();
    return {};
  }
  std::chrono::milliseconds look_again() const override { return std::chrono::milliseconds(1); }
  Result<std::vector<Entry>> read() override {
    std::lock_guard lock(shared_.mutex);
    std::vector<Entry> entries;
    for (const auto& [pool, text] : shared_.kept) entries.push_back({.pool = pool, .text = text});
    return entries;
  }
  Result<bool> write(const Entry& entry) override {
    std::lock_guard lock(shared_.mutex);
    if (shared_.is_away) return away();
    if (shared_.holder != name_) return false;
    shared_.kept[entry.pool] = entry.text;
    return true;
  }

 private:
  static Error away() { return {ErrorCode::kUnavailable, "nobody answers", {}}; }

  Shared& shared_;
  std::string name_;
};

class LeadTest : public testing::Test {
 protected:
  std::unique_ptr<Lead> lead(seconds lease = seconds(60)) {
    return std::make_unique<Lead>(std::make_unique<PlayedStore>(shared_), lease, clock_, log_);
  }
  void change(const std::function<void(Shared&)>& how) {
    std::lock_guard lock(shared_.mutex);
    how(shared_);
  }
  static void wait(const std::function<bool()>& is_so) {
    for (int i = 0; i < 6'000 && !is_so(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_TRUE(is_so());
  }
  std::string kept(const std::string& pool) {
    std::lock_guard lock(shared_.mutex);
    return shared_.kept[pool];
  }

  Shared shared_;
  SharedClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
};

TEST_F(LeadTest, OfTwoOneLeadsAndGivesItUpAtOnce) {
  std::unique_ptr<Lead> first = lead();
  std::unique_ptr<Lead> second = lead();
  EXPECT_TRUE(first->try_to_lead());
  EXPECT_TRUE(first->leads());
  EXPECT_FALSE(second->try_to_lead());
  EXPECT_FALSE(second->leads());
  first.reset();
  ASSERT_TRUE(second->try_to_lead()) << "its lease would have gone on for a minute";
  EXPECT_EQ(second->epoch(), 2u) << "an epoch is nobody's twice";
}

// One that never led gives up nothing.
TEST_F(LeadTest, WhoStandsByTakesNothingAlongWhenItEnds) {
  const std::unique_ptr<Lead> first = lead();
  ASSERT_TRUE(first->try_to_lead());
  std::unique_ptr<Lead> second = lead();
  EXPECT_FALSE(second->try_to_lead());
  second.reset();
  EXPECT_FALSE(lead()->try_to_lead());
}

TEST_F(LeadTest, AStoreThatDoesNotAnswerMakesNobodyLead) {
  change([](Shared& shared) { shared.is_away = true; });
  const std::unique_ptr<Lead> first = lead();
  EXPECT_FALSE(first->try_to_lead());
  change([](Shared& shared) { shared.is_away = false; });
  EXPECT_TRUE(first->try_to_lead());
}

// It stops before its lease can be over, and never leads again although the store answers later.
TEST_F(LeadTest, ALeaseThatIsNotRenewedEnds) {
  change([](Shared& shared) { shared.left = seconds(2); });
  const std::unique_ptr<Lead> first = lead(seconds(2));
  ASSERT_TRUE(first->try_to_lead());
  change([](Shared& shared) { shared.is_away = true; });
  wait([&] { return !first->leads(); });
  change([](Shared& shared) {
    shared.is_away = false;
    shared.left = seconds(60);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(700));  // two times to renew it
  EXPECT_FALSE(first->leads());
}

TEST_F(LeadTest, WhoseLeadIsAnotherOnesEndsAtTheNextRenewal) {
  change([](Shared& shared) { shared.left = seconds(60); });
  const std::unique_ptr<Lead> first = lead(seconds(1));  // renewed four times a second
  ASSERT_TRUE(first->try_to_lead());
  change([](Shared& shared) { shared.holder = "somebody else"; });
  wait([&] { return !first->leads(); });
}

TEST_F(LeadTest, WhatIsKeptIsTheNextOnes) {
  std::unique_ptr<Lead> first = lead();
  ASSERT_TRUE(first->try_to_lead());
  first->keep({{.pool = "a", .text = R"({"x":1})"}, {.pool = "b", .text = R"({"y":2})"}});
  wait([&] { return !kept("a").empty() && !kept("b").empty(); });
  first.reset();
  change([](Shared& shared) {
    shared.kept["broken"] = "{";
    shared.kept["ahead"] = R"({"at_ns":9000000000000000000,"memory":{}})";
  });
  const std::unique_ptr<Lead> second = lead();
  ASSERT_TRUE(second->try_to_lead());
  const auto memories = second->memories();
  ASSERT_TRUE(memories.ok());
  ASSERT_EQ(memories->size(), 2u) << "what is none, and what is of another time, is passed over";
  EXPECT_EQ((*memories)[0].pool, "a");
  EXPECT_EQ((*memories)[0].text, R"({"x":1})");
}

// A write says it before the next renewal does.
TEST_F(LeadTest, WhoWritesAndIsNotItAnyMoreLeadsNoLonger) {
  const std::unique_ptr<Lead> first = lead();
  ASSERT_TRUE(first->try_to_lead());
  change([](Shared& shared) { shared.holder = "somebody else"; });
  EXPECT_TRUE(first->leads()) << "a quarter of a minute until it is renewed";
  first->keep({{.pool = "a", .text = "{}"}});
  wait([&] { return !first->leads(); });
  EXPECT_EQ(kept("a"), "");
}

// Whoever goes on with what another one remembers is not behind its clock.
TEST_F(LeadTest, TheClockIsNotBehindWhatIsRemembered) {
  const int64_t ahead_ns = clock_.now_ns() + 20'000'000'000;
  change([&](Shared& shared) {
    shared.kept["a"] = "{\"at_ns\":" + std::to_string(ahead_ns) + ",\"memory\":{}}";
  });
  const std::unique_ptr<Lead> first = lead();
  ASSERT_TRUE(first->try_to_lead());
  ASSERT_EQ(first->memories()->size(), 1u);
  EXPECT_GE(clock_.now_ns(), ahead_ns);
}

}  // namespace
}  // namespace pelton::launch
