#include "server/generation_request.h"

#include <gtest/gtest.h>

#include "access/api_keys.h"
#include "server/server_house.h"

namespace pelton::server {
namespace {

constexpr std::string_view kScript = R"({"rules": [{"when": "", "then": "x"}]})";

// Whose account pays.
std::string account(const ServedModel& model, std::string_view tenant, std::string_view user) {
  api::GenerationFields fields;
  fields.user = user;
  GenerationSource source;
  source.prompt = {72};
  source.tenant = tenant;
  const auto made = generation_request(model, fields, std::move(source));
  return std::get<request::GenerationRequest>(made).tenant;
}

// A plain key beside a key file: who holds it must not spend what is a tenant's.
TEST(GenerationRequest, AUserIsNeverATenant) {
  ServerHouse house(kScript, {});
  access::ApiKeys keys;
  keys.add("plain");
  ASSERT_TRUE(keys.add_file("sk-1 wheel 2\nsk-2\nsk-3 user/wheel\nsk-4 user", "keys").ok());
  for (const char* key : {"sk-1", "sk-2", "sk-3", "sk-4"}) {
    const std::string& tenant = keys.principal_of(key)->tenant;
    EXPECT_EQ(account(house.model(), tenant, ""), tenant);
    EXPECT_EQ(account(house.model(), tenant, "jet"), tenant);
    for (const std::string& user : {tenant, std::string("wheel"), std::string()}) {
      EXPECT_NE(account(house.model(), keys.principal_of("plain")->tenant, user), tenant);
    }
  }
  EXPECT_EQ(account(house.model(), "", ""), "");
  EXPECT_EQ(account(house.model(), "", "ann"), account(house.model(), "", "ann"));
  EXPECT_NE(account(house.model(), "", "ann"), account(house.model(), "", "bob"));
}

// What the prefix of a user's account rests on.
TEST(GenerationRequest, NoTenantHasABlankInItsName) {
  access::ApiKeys keys;
  ASSERT_TRUE(keys.add_file("sk-1 user 1", "keys").ok());
  EXPECT_EQ(keys.principal_of("sk-1")->tenant, "user");
  EXPECT_FALSE(keys.add_file("sk-2 user wheel", "keys").ok());
}

}  // namespace
}  // namespace pelton::server
