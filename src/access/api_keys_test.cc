#include "access/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::access {
namespace {

std::string tenant(const ApiKeys& keys, std::string_view key) {
  const Principal* found = keys.principal_of(key);
  return found == nullptr ? "nobody" : found->tenant;
}

TEST(ApiKeys, KnowsWhoseAKeyIs) {
  ApiKeys keys;
  EXPECT_TRUE(keys.empty());
  keys.add("alone");
  ASSERT_TRUE(
      keys.add_file("# ours\n\nsk-1 wheel 2.5\r\n  sk-2\twheel\nsk-3\nsk-4 jet 1", "keys").ok());
  EXPECT_FALSE(keys.empty());
  EXPECT_EQ(tenant(keys, "alone"), "");
  EXPECT_EQ(tenant(keys, "sk-1"), "wheel");
  EXPECT_EQ(tenant(keys, "sk-2"), "wheel");
  EXPECT_TRUE(tenant(keys, "sk-3").starts_with("key-"));
  EXPECT_EQ(tenant(keys, "sk-3").find("sk-3"), std::string::npos);
  for (const char* wrong : {"", "sk-", "sk-1 ", "SK-1", "# ours", "wheel"}) {
    EXPECT_EQ(tenant(keys, wrong), "nobody") << wrong;
  }
  EXPECT_EQ(keys.principal_of("sk-1")->weight, 2.5);
  EXPECT_EQ(keys.principal_of("sk-2")->weight, 2.5);
  EXPECT_EQ(keys.principal_of("sk-3")->weight, 1.0);
  EXPECT_FALSE(keys.principal_of("sk-1")->limits.any());
}

TEST(ApiKeys, KnowsWhatAKeyMayAskFor) {
  ApiKeys keys;
  ASSERT_TRUE(keys.add_file("a wheel 2 rpm=60 tpm=100000 concurrent=4\n"
                            "b wheel tpm=5\n"
                            "c rpm=1\n"
                            "rpm=7 d\n",
                            "keys")
                  .ok());
  using admission::Limits;
  EXPECT_EQ(
      keys.principal_of("a")->limits,
      (Limits{.requests_per_minute = 60, .tokens_per_minute = 100'000, .concurrent_requests = 4}));
  EXPECT_EQ(keys.principal_of("b")->limits, (Limits{.tokens_per_minute = 5}));
  EXPECT_EQ(keys.principal_of("b")->weight, 2.0);
  EXPECT_EQ(keys.principal_of("c")->limits, (Limits{.requests_per_minute = 1}));
  EXPECT_TRUE(tenant(keys, "c").starts_with("key-"));
  EXPECT_EQ(tenant(keys, "rpm=7"), "d");  // the first word is the key, whatever it is
  EXPECT_NE(keys.principal_of("a")->account, keys.principal_of("b")->account);
}

TEST(ApiKeys, KnowsWhichAreAnOperators) {
  ApiKeys keys;
  ASSERT_TRUE(keys.add_file("a wheel 2 rpm=60 role=admin\n"
                            "b role=admin\n"
                            "c admin\n",
                            "keys")
                  .ok());
  keys.add("d");
  keys.add_admin("e");
  keys.add_admin("d");
  for (const char* key : {"a", "b", "d", "e"}) EXPECT_TRUE(keys.principal_of(key)->is_admin) << key;
  EXPECT_EQ(keys.principal_of("a")->limits.requests_per_minute, 60);
  EXPECT_FALSE(keys.principal_of("c")->is_admin);
  EXPECT_EQ(tenant(keys, "c"), "admin");  // a tenant's name, as it always was
}

TEST(ApiKeys, RefusesByLineAndNeverShowsAKey) {
  const std::pair<std::string, const char*> cases[] = {
      {"secret a 1 more", "keys:1"},
      {"secret a 1 rpm=0", "keys:1: 'rpm' is a whole number from 1"},
      {"secret a 1 rpm=-5", "rpm"},
      {"secret a 1 rpm=1.5", "rpm"},
      {"secret a 1 rpm=", "rpm"},
      {"secret tpm=99999999999999999999", "tpm"},
      {"secret concurrent=1000001", "concurrent"},
      {"secret rpm=5 a", "keys:1: more than a key"},
      {"secret a 1 burst=5", "keys:1: 'burst=' is none of rpm=, tpm="},
      {"secret Region=eu", "keys:1: 'Region=' is none of"},
      {"secret a regoin=eu", "keys:1: 'regoin=' is none of"},
      {"secret a 1 role=root", "keys:1: 'role' is 'view'"},
      {"secret a role=view role=admin", "keys:1: 'role' is there twice"},
      {"ok\nsecret a 0", "keys:2: a weight"},
      {"secret a -1", "weight"},
      {"secret a nan", "weight"},
      {"secret a 1e9", "weight"},
      {"secret a 1000.5", "keys:1: a weight is a number from 0.001 to 1000"},
      {"ok\nsecret a 0.00099", "keys:2: a weight is a number from 0.001 to 1000"},
      {"secret a 1e-300", "weight"},
      {"secret a 1x", "weight"},
      {"secret a 1\nsecret2 a 2", "keys:2: tenant 'a' has another weight"},
      {"secret\nsecret", "there already"},
      {"secret\x01", "printable"},
      {"secret" + std::string(600, 'x'), "512"},
      {"secret " + std::string(65, 'x'), "64"},
  };
  for (const auto& [text, what] : cases) {
    ApiKeys keys;
    const Result<void> added = keys.add_file(text, "keys");
    ASSERT_FALSE(added.ok()) << text;
    EXPECT_EQ(added.error().code, ErrorCode::kBadConfig);
    EXPECT_THAT(added.error().message, testing::HasSubstr(what));
    EXPECT_THAT(added.error().message, testing::Not(testing::HasSubstr("secret")));
  }
  ApiKeys bounds;
  EXPECT_TRUE(bounds.add_file("secret a 0.001\nsecret2 b 1000", "keys").ok());
  std::string many;
  for (size_t i = 0; i <= ApiKeys::kKeysMax; ++i) many += "key" + std::to_string(i) + "\n";
  ApiKeys keys;
  EXPECT_FALSE(keys.add_file(many, "keys").ok());
}

}  // namespace
}  // namespace pelton::access
