#include "admission/fair_queue.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace pelton::admission {
namespace {

// Tenants that always have work waiting, served one item at a time.
class Shop {
 public:
  explicit Shop(const FairQueue::Options& options) : Shop(options, {}) {}
  Shop(const FairQueue::Options& options, std::map<std::string, double> weights)
      : queue(options), weights_(std::move(weights)) {}

  int64_t bring(const std::string& tenant, int priority, int64_t cost) {
    const FairQueue::Item item{
        .id = next_id_++, .priority = priority, .rank = queue.rank(priority)};
    const auto weight = weights_.find(tenant);
    queue.enter(tenant, weight == weights_.end() ? 1.0 : weight->second);
    queue.add(tenant, item);
    known_[item.id] = {tenant, item, cost};
    return item.id;
  }

  // Serves the next; returns whose it was.
  std::string serve() {
    const std::optional<int64_t> id = queue.next({});
    if (!id) return "";
    const Known known = known_.at(*id);
    last_id = *id;
    queue.remove(known.tenant, known.item);
    queue.charge(known.tenant, known.cost);
    queue.leave(known.tenant);
    spent[known.tenant] += known.cost;
    return known.tenant;
  }

  FairQueue queue;
  std::map<std::string, int64_t> spent;
  int64_t last_id = -1;

 private:
  struct Known {
    std::string tenant;
    FairQueue::Item item;
    int64_t cost = 0;
  };
  const std::map<std::string, double> weights_;
  int64_t next_id_ = 0;
  std::map<int64_t, Known> known_;
};

TEST(FairQueue, one_tenant_is_served_in_order) {
  Shop shop({});
  for (int i = 0; i < 5; ++i) shop.bring("a", 0, 100);
  for (int i = 0; i < 5; ++i) {
    shop.serve();
    EXPECT_EQ(shop.last_id, i);
  }
  EXPECT_TRUE(shop.queue.empty());
  EXPECT_EQ(shop.queue.tenant_count(), 0u);
}

TEST(FairQueue, tokens_follow_weights_not_requests) {
  Shop shop({}, {{"b", 3.0}});
  // a's requests are ten times as long, and it brings ten times as many.
  for (int i = 0; i < 2000; ++i) shop.bring("a", 0, 1000);
  for (int i = 0; i < 2000; ++i) shop.bring("b", 0, 100);
  while (shop.spent["b"] < 150'000) shop.serve();
  EXPECT_NEAR(static_cast<double>(shop.spent["a"]), 50'000, 2'000);
}

// Someone who was away has neither lost nor saved anything.
TEST(FairQueue, a_group_can_be_left_out) {
  FairQueue queue({});
  queue.enter("a", 1);
  for (int64_t id = 0; id < 4; ++id) queue.add("a", {.id = id, .rank = id, .group = id / 2});
  EXPECT_EQ(queue.next({}), 0);
  EXPECT_EQ(queue.next({}, [](int64_t group) { return group == 1; }), 2);
  EXPECT_EQ(queue.next({}, [](int64_t) { return false; }), std::nullopt);
}

TEST(FairQueue, idle_time_is_no_credit) {
  Shop shop({});
  for (int i = 0; i < 100; ++i) shop.bring("a", 0, 100);
  for (int i = 0; i < 50; ++i) shop.serve();
  for (int i = 0; i < 50; ++i) shop.bring("b", 0, 100);
  shop.spent.clear();
  for (int i = 0; i < 40; ++i) shop.serve();
  EXPECT_NEAR(static_cast<double>(shop.spent["a"]), 2000, 200);
  EXPECT_NEAR(static_cast<double>(shop.spent["b"]), 2000, 200);
}

// A stream of urgent work passes a patient item for so many tokens and no longer.
TEST(FairQueue, a_lower_priority_waits_but_does_not_starve) {
  Shop shop({.priority_tokens = 1000});
  const int64_t patient = shop.bring("a", 1, 10);
  int served = 0;
  for (; served < 1000; ++served) {
    shop.bring("a", 0, 100);
    shop.serve();
    if (shop.last_id == patient) break;
  }
  EXPECT_GE(served, 9);
  EXPECT_LE(served, 12);
}

TEST(FairQueue, priorities_go_first_across_tenants_with_equal_accounts) {
  Shop shop({});
  shop.bring("a", 0, 10);
  shop.bring("b", -1, 10);
  EXPECT_EQ(shop.serve(), "b");
  EXPECT_EQ(shop.serve(), "a");
}

TEST(FairQueue, who_is_passed_over_keeps_its_place) {
  Shop shop({});
  const std::vector<int64_t> ids = {shop.bring("a", 0, 1), shop.bring("a", 0, 1),
                                    shop.bring("b", 0, 1)};
  EXPECT_EQ(shop.queue.next({}), ids[0]);
  EXPECT_EQ(shop.queue.next(std::span(ids).first(1)), ids[1]);
  EXPECT_EQ(shop.queue.next(std::span(ids).first(2)), ids[2]);
  EXPECT_EQ(shop.queue.next(ids), std::nullopt);
}

TEST(FairQueue, names_without_number_are_not_kept) {
  Shop shop({});
  shop.bring("patient", 100, 1);
  for (int i = 0; i < 20'000; ++i) {
    shop.bring(std::to_string(i), 0, 100);
    shop.serve();
    ASSERT_LE(shop.queue.tenant_count(), 1100u);
  }
}

// With everybody busy, no two accounts drift apart by more than the largest item each.
TEST(FairQueue, random_busy_tenants_stay_level) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    uint64_t draw = 0;
    const auto random = [&](int below) {
      return static_cast<int>(base::random_bits(seed, draw++) % static_cast<uint64_t>(below));
    };
    const std::vector<std::string> names = {"a", "b", "c", "d"};
    Shop shop({}, {{"a", 0.5}, {"b", 2.0}});
    for (const std::string& name : names) {
      for (int i = 0; i < 3; ++i) shop.bring(name, 0, 1 + random(500));
    }
    for (int i = 0; i < 2000; ++i) {
      const std::string served = shop.serve();
      shop.bring(served, 0, 1 + random(500));
      double least = 1e18, most = 0;
      for (const std::string& name : names) {
        least = std::min(least, shop.queue.account(name));
        most = std::max(most, shop.queue.account(name));
      }
      ASSERT_LE(most - least, 1001) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace pelton::admission
