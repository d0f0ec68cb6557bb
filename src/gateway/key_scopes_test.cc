#include "gateway/key_scopes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "access/api_keys.h"

namespace pelton::gateway {
namespace {

// Both readers of the file understand each line.
TEST(KeyScopes, StandBesideWhatServersRead) {
  constexpr std::string_view kFile =
      "a wheel 2 models=m,n pool=p rpm=6\n# none\n\nb region=eu\nc wheel\nd wheel explain\n"
      "e explain\n";
  access::ApiKeys keys;
  ASSERT_TRUE(keys.add_file(kFile, "keys").ok());
  const auto scopes = KeyScopes::parse(kFile, "keys");
  ASSERT_TRUE(scopes.ok());
  const auto of = [&](std::string_view key) { return scopes->of(keys.principal_of(key)->account); };
  ASSERT_NE(of("a"), nullptr);
  EXPECT_EQ(*of("a"), (KeyScope{.models = {"m", "n"}, .pool = "p", .region = {}}));
  EXPECT_EQ(keys.principal_of("a")->limits.requests_per_minute, 6);
  EXPECT_EQ(keys.principal_of("a")->weight, 2.0);
  EXPECT_EQ(keys.principal_of("a")->tenant, "wheel");
  ASSERT_NE(of("b"), nullptr);
  EXPECT_EQ(of("b")->region, "eu");
  EXPECT_FALSE(of("b")->may_explain);
  EXPECT_EQ(of("c"), nullptr);
  ASSERT_NE(of("d"), nullptr);
  EXPECT_TRUE(of("d")->may_explain);
  ASSERT_NE(of("e"), nullptr);
  EXPECT_TRUE(of("e")->may_explain);
  EXPECT_NE(keys.principal_of("e")->tenant, "explain") << "no tenant's name";
  EXPECT_TRUE(scopes->are_for_gateways());
  EXPECT_FALSE(KeyScopes::parse("a b rpm=1 role=admin\n", "keys")->are_for_gateways());
}

TEST(KeyScopes, SayWhoseKeysAreAnOperators) {
  constexpr std::string_view kFile = "a wheel role=admin\nb wheel\nc role=admin pool=p\n";
  access::ApiKeys keys;
  ASSERT_TRUE(keys.add_file(kFile, "keys").ok());
  const auto scopes = KeyScopes::parse(kFile, "keys");
  ASSERT_TRUE(scopes.ok());
  const auto of = [&](std::string_view key) { return scopes->of(keys.principal_of(key)->account); };
  ASSERT_NE(of("a"), nullptr);
  EXPECT_TRUE(of("a")->is_operator);
  EXPECT_EQ(of("a")->pool, "");
  EXPECT_EQ(of("b"), nullptr);
  EXPECT_TRUE(of("c")->is_operator);
  EXPECT_EQ(of("c")->pool, "p");
  EXPECT_TRUE(scopes->has_operators());
  EXPECT_FALSE(KeyScopes::parse("b wheel explain\n", "keys")->has_operators());
}

TEST(KeyScopes, RefuseByLineAndNeverShowAKey) {
  const std::pair<std::string, const char*> cases[] = {
      {"secret models=", "keys:1: 'models' is empty"},
      {"ok\nsecret models=a,,b", "keys:2: 'models' is names"},
      {"secret models=a,", "keys:1: 'models' is names"},
      {"secret pool=a pool=b", "keys:1: 'pool' is said twice"},
      {"secret region=a region=a", "keys:1: 'region' is said twice"},
      {"secret models=a models=b", "keys:1: 'models' is said twice"},
      {"secret explain explain", "keys:1: 'explain' is said twice"},
  };
  for (const auto& [text, what] : cases) {
    const auto scopes = KeyScopes::parse(text, "keys");
    ASSERT_FALSE(scopes.ok()) << text;
    EXPECT_THAT(scopes.error().message, testing::HasSubstr(what));
    EXPECT_THAT(scopes.error().message, testing::Not(testing::HasSubstr("secret")));
  }
}

}  // namespace
}  // namespace pelton::gateway
