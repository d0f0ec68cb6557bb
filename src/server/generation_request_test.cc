#include "server/generation_request.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "access/api_keys.h"
#include "server/server_fixture.h"

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
  ServerFixture fixture(kScript, {});
  access::ApiKeys keys;
  keys.add("plain");
  ASSERT_TRUE(keys.add_file("sk-1 wheel 2\nsk-2\nsk-3 user/wheel\nsk-4 user", "keys").ok());
  for (const char* key : {"sk-1", "sk-2", "sk-3", "sk-4"}) {
    const std::string& tenant = keys.principal_of(key)->tenant;
    EXPECT_EQ(account(fixture.model(), tenant, ""), tenant);
    EXPECT_EQ(account(fixture.model(), tenant, "jet"), tenant);
    for (const std::string& user : {tenant, std::string("wheel"), std::string()}) {
      EXPECT_NE(account(fixture.model(), keys.principal_of("plain")->tenant, user), tenant);
    }
  }
  EXPECT_EQ(account(fixture.model(), "", ""), "");
  EXPECT_EQ(account(fixture.model(), "", "ann"), account(fixture.model(), "", "ann"));
  EXPECT_NE(account(fixture.model(), "", "ann"), account(fixture.model(), "", "bob"));
}

request::GenerationRequest made_of(const ServedModel& model, const api::GenerationFields& fields) {
  GenerationSource source;
  source.prompt = {72};
  return std::get<request::GenerationRequest>(generation_request(model, fields, std::move(source)));
}

// "world" begins a text, " world" stands in one; their tokens may be more or fewer.
TEST(GenerationRequest, ABadWordIsBannedWithABlankBeforeItToo) {
  ServerFixture fixture(kScript, {});
  const ServedModel& model = fixture.model();
  int others = 0;
  for (const std::string word : {"world", "the", "hello there", "a", "x", "in", "friend"}) {
    api::GenerationFields fields;
    fields.bad_words = {word};
    const auto banned = made_of(model, fields).sampling.bad_words;
    for (const std::string& text : {word, " " + word}) {
      const std::vector<TokenId> tokens = model.tokenizer.encode(text);
      const bool is_banned = std::ranges::any_of(banned, [&](const std::vector<TokenId>& one) {
        return one.size() <= tokens.size() && std::equal(one.rbegin(), one.rend(), tokens.rbegin());
      });
      EXPECT_TRUE(is_banned) << text;
    }
    others += model.tokenizer.encode(" " + word).size() != model.tokenizer.encode(word).size();
  }
  EXPECT_GT(others, 0) << "the vocabulary shows nothing";
}

TEST(GenerationRequest, BreakersAreRefusedWhereNoTextCanBeFound) {
  ServerFixture fixture(kScript, {.model = [](ServedModel& model) { model.has_text = false; }});
  api::GenerationFields fields;
  fields.dry.multiplier = 0.8;
  EXPECT_EQ(made_of(fixture.model(), fields).sampling.dry.breakers, nullptr);
  fields.dry.breakers = {"\n"};
  const auto refused = generation_request(fixture.model(), fields, {.prompt = {72}});
  ASSERT_TRUE(std::holds_alternative<api::ApiError>(refused));
  EXPECT_EQ(std::get<api::ApiError>(refused).param, "dry_sequence_breakers");
  fields.dry.multiplier = 0.0;
  EXPECT_EQ(made_of(fixture.model(), fields).sampling.dry.breakers, nullptr);
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
