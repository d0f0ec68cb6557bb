#include "gateway/fixed_pools.h"

#include <string>

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

PoolConfig pool(const std::string& name, const std::string& model, bool is_launched = true) {
  PoolConfig pool;
  pool.name = name;
  pool.models = {model};
  pool.scaling.emplace().place = "g.toml:7";
  if (is_launched) pool.scaling->launch.emplace().serve = {"/models/m"};
  return pool;
}

PoolConfig unscaled(const std::string& name, const std::string& model) {
  PoolConfig plain = pool(name, model);
  plain.scaling.reset();
  return plain;
}

// What is said of such a file; empty: it may be in force.
std::string said(const std::vector<PoolConfig>& before, const std::vector<PoolConfig>& after) {
  GatewayConfig in_force;
  in_force.pools = before;
  GatewayConfig fresh;
  fresh.pools = after;
  const Result<void> checked = check_fixed_pools(in_force, fresh);
  return checked.ok() ? "" : checked.error().message;
}

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

TEST(FixedPoolsTest, ScaledPoolsAreTheSameUntilANewStart) {
  EXPECT_EQ(said({pool("a", "m")}, {pool("a", "m")}), "");
  EXPECT_TRUE(has(said({pool("a", "m"), pool("b", "n")}, {pool("a", "m")}), "pool 'b'"));
  const std::string added = said({pool("a", "m")}, {pool("a", "m"), pool("c", "n")});
  EXPECT_TRUE(has(added, "g.toml:7: [[pool]]: pool 'c' is new")) << added;
  const std::string renamed = said({pool("a", "m")}, {pool("c", "m")});
  EXPECT_TRUE(has(renamed, "pool 'a'") && has(renamed, "a new start")) << renamed;
  const std::string model = said({pool("a", "m")}, {pool("a", "n")});
  EXPECT_TRUE(has(model, "are called 'm', and its 'model' is 'n'")) << model;
}

TEST(FixedPoolsTest, OthersComeAndGo) {
  EXPECT_EQ(said({pool("a", "m"), unscaled("b", "n")}, {pool("a", "m"), unscaled("c", "o")}), "");
  // Its workers come from elsewhere, and are called as they like.
  EXPECT_EQ(said({pool("a", "m", false)}, {pool("a", "n", false)}), "");
  PoolConfig pods = pool("a", "m");
  pods.kubernetes_service = "workers";
  EXPECT_EQ(said({pods}, {pool("a", "n")}), "");
  // Gateway::reload() keeps [pool.scale] as it was, there and not there.
  EXPECT_EQ(said({pool("a", "m")}, {unscaled("a", "m")}), "");
  EXPECT_EQ(said({unscaled("a", "m")}, {pool("a", "m")}), "");
}

}  // namespace
}  // namespace pelton::gateway
