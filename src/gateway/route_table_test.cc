#include "gateway/route_table.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace pelton::gateway {
namespace {

GatewayConfig split(double weight) {
  return {.pools = {{.name = "old", .models = {"m"}}, {.name = "new", .models = {"m"}}},
          .routes = {{.model = "m",
                      .sticky = RouteConfig::Sticky::kSession,
                      .arms = {{.pool = "old", .name = "a", .weight = 100 - weight},
                               {.pool = "new", .name = "b", .weight = weight}}}}};
}

std::string arm_of(const GatewayConfig& config, const RouteKey& key) {
  const auto choice = choose_route(config, key);
  return choice && choice->arm != nullptr ? choice->arm->name : "";
}

TEST(RouteTable, SharesAreAsTheWeights) {
  const GatewayConfig config = split(5);
  int new_ones = 0;
  constexpr int kRequests = 100'000;
  for (uint64_t i = 0; i < kRequests; ++i) {
    new_ones += arm_of(config, {.model = "m", .draw = base::random_bits(7, i)}) == "b" ? 1 : 0;
  }
  EXPECT_NEAR(new_ones, kRequests * 0.05, kRequests * 0.01);
}

// Within 1 % of all requests, of several arms, however their pools are called.
TEST(RouteTable, SharesOfManyArmsAreAsTheWeights) {
  const std::map<std::string, double> weights = {{"a", 50}, {"b", 30}, {"c", 15}, {"d", 5}};
  GatewayConfig config{.pools = {{.name = "p", .models = {"m"}}}};
  config.routes.push_back({.model = "m"});
  for (const auto& [name, weight] : weights) {
    config.routes.front().arms.push_back({.pool = "p", .name = name, .weight = weight});
  }
  constexpr int kRequests = 100'000;
  std::map<std::string, int> counts;
  for (int i = 0; i < kRequests; ++i) {
    ++counts[arm_of(config, {.model = "m", .session = "conversation " + std::to_string(i)})];
  }
  for (const auto& [name, weight] : weights) {
    EXPECT_NEAR(counts[name], kRequests * weight / 100, kRequests * 0.01) << name;
  }
}

// A roll-out: shares as it says, and a step moves conversations to its arm only.
TEST(RouteTable, AnArmThatIsRolledOutHasItsShareAndTakesFromOthersOnly) {
  GatewayConfig config = split(40);
  config.pools.push_back({.name = "next", .models = {"m"}});
  config.routes.front().arms.push_back({.pool = "next", .name = "c"});
  config.routes.front().rollout = RolloutPlan{.name = "v2", .arm = "c"};
  constexpr int kConversations = 40'000;
  std::map<std::string, std::string> before;
  for (const double share : {0.0, 0.01, 0.05, 0.25, 1.0}) {
    std::map<std::string, int> counts;
    for (int i = 0; i < kConversations; ++i) {
      const std::string session = "conversation " + std::to_string(i);
      RouteKey key{.model = "m", .session = session};
      key.rollout.share = share;
      const std::string arm = arm_of(config, key);
      std::string& had = before[session];
      EXPECT_TRUE(had.empty() || arm == had || arm == "c") << had << " " << arm;
      had = arm;
      ++counts[arm];
    }
    EXPECT_NEAR(counts["c"], kConversations * share, kConversations * 0.005);
    EXPECT_NEAR(counts["a"], kConversations * 0.6 * (1 - share), kConversations * 0.01);
  }
}

TEST(RouteTable, AConversationStaysWithItsSideOfARollout) {
  GatewayConfig config = split(0);
  config.routes.front().rollout = RolloutPlan{.name = "v2", .arm = "b"};
  using Pin = RolloutShare::Pin;
  for (uint64_t i = 0; i < 200; ++i) {
    const auto with = [&](double share, Pin pin) {
      RouteKey key{.model = "m", .draw = i};
      key.rollout = {.share = share, .pin = pin};
      return arm_of(config, key);
    };
    EXPECT_EQ(with(0.9, Pin::kOthers), "a");
    EXPECT_EQ(with(0.01, Pin::kCandidate), "b");
    EXPECT_EQ(with(0, Pin::kCandidate), "a") << "it has been taken back";
    EXPECT_EQ(with(1, Pin::kOthers), "b") << "the other arm gets nothing more";
  }
  RouteKey key{.model = "m", .home = "new"};
  EXPECT_EQ(arm_of(config, key), "b") << "where the response is that it goes on from";
  EXPECT_FALSE(choose_route(config, key)->is_drawn);
}

TEST(RouteTable, AUserStaysAndSoDoesWhoGoesOnFromAResponse) {
  GatewayConfig config = split(50);
  config.routes.front().sticky = RouteConfig::Sticky::kUser;
  std::map<std::string, int> counts;
  for (uint64_t i = 0; i < 200; ++i) {
    const std::string user = "u" + std::to_string(i);
    const std::string arm = arm_of(config, {.model = "m", .user = user, .draw = i});
    ++counts[arm];
    EXPECT_EQ(arm_of(config, {.model = "m", .session = "other", .user = user, .draw = 7}), arm);
    EXPECT_EQ(arm_of(config, {.model = "m", .user = user, .home = "new"}), "b");
    EXPECT_EQ(arm_of(config, {.model = "m", .user = user, .home = "old"}), "a");
  }
  EXPECT_GT(counts["a"], 60);
  EXPECT_GT(counts["b"], 60);
}

TEST(RouteTable, AShareOfTheConversationsIsShadowedWhateverTheirArm) {
  GatewayConfig config = split(50);
  config.pools.push_back({.name = "try", .models = {"m"}});
  config.routes.front().shadow = ShadowConfig{.pool = "try", .share = 0.1};
  constexpr int kRequests = 100'000;
  std::map<std::string, int> shadowed;
  for (int i = 0; i < kRequests; ++i) {
    const std::string session = "s" + std::to_string(i);
    const auto choice = choose_route(config, {.model = "m", .session = session});
    ASSERT_TRUE(choice);
    EXPECT_NE(choice->pool->name, "try") << "no client is sent there";
    if (choice->is_shadowed) ++shadowed[choice->arm->name];
    const auto again = choose_route(config, {.model = "m", .session = session, .draw = 5});
    EXPECT_EQ(again->is_shadowed, choice->is_shadowed);
  }
  EXPECT_NEAR(shadowed["a"], kRequests * 0.05, kRequests * 0.005);
  EXPECT_NEAR(shadowed["b"], kRequests * 0.05, kRequests * 0.005);
}

TEST(RouteTable, ASessionStaysAndAWeightMovesOnlyTheDifference) {
  constexpr int kSessions = 20'000;
  int moved = 0;
  for (int i = 0; i < kSessions; ++i) {
    const std::string session = "s" + std::to_string(i);
    const RouteKey key{.model = "m", .session = session, .draw = static_cast<uint64_t>(i)};
    const std::string before = arm_of(split(5), key);
    EXPECT_EQ(arm_of(split(5), {.model = "m", .session = session, .draw = 99}), before);
    const std::string after = arm_of(split(20), key);
    if (before == "b") {
      EXPECT_EQ(after, "b") << "who has the new one keeps it";
    }
    moved += before != after ? 1 : 0;
  }
  EXPECT_NEAR(moved, kSessions * 0.15, kSessions * 0.015);
}

TEST(RouteTable, AnArmWithoutWeightGetsNothing) {
  const GatewayConfig config = split(0);
  for (uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(arm_of(config, {.model = "m", .draw = base::random_bits(8, i)}), "a");
  }
}

// GW-14: what a tenant may not have is not there for it.
TEST(RouteTable, ATenantSeesItsModelsAndItsPoolOnly) {
  const GatewayConfig config{
      .pools = {{.name = "eu", .models = {"m", "secret"}}, {.name = "us", .models = {"n"}}},
      .tenants = {{.name = "acme", .models = {"m"}, .pool = {}},
                  {.name = "pinned", .models = {}, .pool = "us"}}};
  const auto pool_of = [&](std::string_view model, std::string_view tenant) {
    const auto choice = choose_route(config, {.model = model, .asker = {.tenant = tenant}});
    return choice ? choice->pool->name : std::string("none");
  };
  EXPECT_EQ(pool_of("m", "acme"), "eu");
  EXPECT_EQ(pool_of("secret", "acme"), "none");
  EXPECT_EQ(pool_of("secret", ""), "eu");
  EXPECT_EQ(pool_of("m", "pinned"), "none");
  EXPECT_EQ(pool_of("n", "pinned"), "us");
  EXPECT_EQ(pool_of("other", ""), "none");
  EXPECT_EQ(pool_of("", "acme"), "none") << "there are two";
}

// A pool whose workers say themselves where they stand is in everybody's reach: which of them may
// be asked is the fleet's business (Fleet::Wanted::region).
TEST(RouteTable, APoolOfManyRegionsIsInReach) {
  const GatewayConfig config{
      .pools = {{.name = "all", .models = {"m"}, .region = "*"}},
      .tenants = {{.name = "acme", .models = {}, .pool = {}, .region = "eu"}}};
  const KeyScope in_us{.models = {}, .pool = {}, .region = "us"};
  const auto reached = [&](const Asker& asker) {
    const auto choice = choose_route(config, {.model = "m", .asker = asker});
    return choice && choice->pool != nullptr;
  };
  EXPECT_TRUE(reached({.tenant = "acme"}));
  EXPECT_EQ(region_of(config, {.tenant = "acme"}), "eu");
  EXPECT_TRUE(reached({.tenant = "other", .scope = &in_us}));
  EXPECT_EQ(region_of(config, {.tenant = "other", .scope = &in_us}), "us");
  EXPECT_FALSE(reached({.tenant = "acme", .scope = &in_us})) << "tied to both, there is nowhere";
  EXPECT_EQ(region_of(config, {.tenant = "other"}), "");
}

// TN-14: a region that has no pool any more is no reason to leave it.
TEST(RouteTable, AKeyAndItsTenantStayInTheirRegion) {
  GatewayConfig config{.pools = {{.name = "eu", .models = {"m"}, .region = "eu"},
                                 {.name = "us", .models = {"m"}, .region = "us"}},
                       .routes = {{.model = "m",
                                   .arms = {{.pool = "eu", .name = "eu", .weight = 1},
                                            {.pool = "us", .name = "us", .weight = 99}},
                                   .shadow = ShadowConfig{.pool = "us", .share = 1}}},
                       .tenants = {{.name = "acme", .models = {}, .pool = {}, .region = "eu"}}};
  const KeyScope in_us{.models = {}, .pool = {}, .region = "us"};
  const KeyScope in_eu{.models = {}, .pool = {}, .region = "eu"};
  const KeyScope of_eu{.models = {}, .pool = "eu", .region = {}};
  const KeyScope of_n{.models = {"n"}, .pool = {}, .region = {}};
  const auto pool_of = [&](std::string_view tenant, const KeyScope* scope, uint64_t i = 0) {
    const auto choice = choose_route(config, {.model = "m",
                                              .asker = {.tenant = tenant, .scope = scope},
                                              .draw = base::random_bits(3, i)});
    if (!choice) return std::string("404");
    if (choice->pool == nullptr) return std::string("503");
    EXPECT_EQ(choice->is_shadowed, !config.routes.empty() && tenant.empty() && scope == &in_us)
        << "nor does a copy leave";
    return choice->pool->name;
  };
  for (uint64_t i = 0; i < 200; ++i) {
    EXPECT_EQ(pool_of("acme", nullptr, i), "eu");
    EXPECT_EQ(pool_of("", &in_us, i), "us");
    EXPECT_EQ(pool_of("", &in_eu, i), "eu");
  }
  EXPECT_EQ(pool_of("", &of_eu), "eu");
  EXPECT_EQ(pool_of("acme", &in_us), "503") << "both hold";
  EXPECT_EQ(pool_of("", &of_n), "404") << "as one that nobody has";
  config.pools.erase(config.pools.begin());
  config.routes.clear();
  EXPECT_EQ(pool_of("acme", nullptr), "503");
  EXPECT_EQ(pool_of("", &in_us), "us");
}

TEST(RouteTable, FallsBackToWhatTheAskerMayUse) {
  GatewayConfig config = split(50);
  config.pools.push_back({.name = "spare", .models = {"m"}, .region = "us"});
  config.routes.front().fallback = {"spare", "new"};
  const auto fallback = [&](std::string_view tenant, uint64_t draw) {
    const RouteKey key{.model = "m", .asker = {.tenant = tenant}, .draw = draw};
    const auto choice = choose_route(config, key);
    std::vector<std::string> pools = fallback_of(config, key, *choice);
    if (choice->pool->name == "new") pools.insert(pools.begin(), "went to new");
    return pools;
  };
  std::set<std::vector<std::string>> seen;
  for (uint64_t i = 0; i < 200; ++i) seen.insert(fallback("", base::random_bits(5, i)));
  EXPECT_EQ(seen, (std::set<std::vector<std::string>>{{"spare", "new"}, {"went to new", "spare"}}));
  config.tenants = {{.name = "eu", .models = {}, .pool = {}, .region = "eu", .weight = 3}};
  config.pools[0].region = config.pools[1].region = "eu";
  seen.clear();
  for (uint64_t i = 0; i < 200; ++i) seen.insert(fallback("eu", base::random_bits(5, i)));
  EXPECT_EQ(seen, (std::set<std::vector<std::string>>{{"new"}, {"went to new"}}))
      << "never to another region";
  EXPECT_EQ(weight_of(config, {.tenant = "eu"}), 3);
  EXPECT_EQ(weight_of(config, {.tenant = "other"}), 0);
}

// Its worker would choose one.
TEST(RouteTable, WhoMayUseSomeModelsOfAPoolNamesOne) {
  const GatewayConfig config{.pools = {{.name = "p", .models = {"m", "secret"}}}};
  const KeyScope scope{.models = {"m"}, .pool = {}, .region = {}};
  const Asker limited{.tenant = "t", .scope = &scope};
  EXPECT_TRUE(choose_route(config, {.model = "", .asker = {}}));
  EXPECT_FALSE(choose_route(config, {.model = "", .asker = limited}));
  EXPECT_TRUE(choose_route(config, {.model = "m", .asker = limited}));
  EXPECT_TRUE(is_limited_to_models(config, limited));
  EXPECT_FALSE(is_limited_to_models(config, {.tenant = "t"}));
}

TEST(RouteTable, AShadowsPoolIsForNoClient) {
  GatewayConfig config = split(50);
  config.pools.push_back({.name = "try", .models = {"m"}});
  config.routes.front().shadow = ShadowConfig{.pool = "try", .share = 0.1};
  EXPECT_TRUE(is_for_clients(config, config.pools[0]));
  EXPECT_FALSE(is_for_clients(config, config.pools[2]));
  config.pools[2].models.emplace_back("another, which no route has");
  EXPECT_TRUE(is_for_clients(config, config.pools[2]));
  config.pools[2].models = {"m"};
  config.tenants = {{.name = "t", .models = {}, .pool = "try", .region = {}}};
  EXPECT_TRUE(is_for_clients(config, config.pools[2]));
  config.tenants.clear();
  config.routes.front().arms.push_back({.pool = "try", .name = "c", .weight = 1});
  EXPECT_TRUE(is_for_clients(config, config.pools[2]));
}

}  // namespace
}  // namespace pelton::gateway
