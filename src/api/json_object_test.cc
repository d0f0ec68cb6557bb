#include "api/json_object.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "base/random.h"

namespace pelton::api {
namespace {

TEST(ModelAsked, IsTheBodysOwn) {
  const auto asked = [](std::string_view body) { return model_asked(body).value(); };
  EXPECT_EQ(asked(R"({"model":"a"})"), "a");
  EXPECT_EQ(asked(R"({"stream":true,"messages":[{"model":"b"}],"model":"a","n":1})"), "a");
  EXPECT_EQ(asked(R"({"metadata":{"model":"b"}})"), "");
  EXPECT_EQ(asked(R"({"mod\u0065l":"\u0061"})"), "a");
  EXPECT_EQ(asked(R"({"model":null})"), "");
  EXPECT_EQ(asked(R"({"a":"model","b":"c"})"), "");
  EXPECT_EQ(asked(R"([{"model":"a"}])"), "");
  EXPECT_EQ(asked(R"("model")"), "");
  EXPECT_EQ(asked("7"), "");
  EXPECT_FALSE(model_asked(R"({"model":"a")").ok());
  EXPECT_FALSE(model_asked("").ok());
  const auto refused = [](std::string_view body) {
    const Result<std::string> asked = model_asked(body);
    if (asked.ok()) return "taken: " + *asked;
    EXPECT_EQ(asked.error().field, "model");
    return asked.error().message;
  };
  EXPECT_EQ(refused(R"({"model":5})"), "'model' must be a string, not an integer");
  EXPECT_EQ(refused(R"({"model":0.5})"), "'model' must be a string, not a number");
  EXPECT_EQ(refused(R"({"model":["a"]})"), "'model' must be a string, not an array");
  EXPECT_EQ(refused(R"({"model":{"model":"a"}})"), "'model' must be a string, not an object");
  EXPECT_EQ(refused(R"({"model":"a","model":"b"})"),
            "'model' stands twice in the body; give it once");
}

// Bodies that are made of few pieces, so that what matters comes often: a value is read as the
// parser of the whole body reads it.
TEST(ModelAsked, AgreesWithTheParser) {
  const char* const seed_text = std::getenv("PELTON_SEED");
  const uint64_t seed = seed_text != nullptr ? std::strtoull(seed_text, nullptr, 10) : 20261123;
  constexpr std::string_view kPieces[] = {
      "{",  "}",      "[",     "]",           ",",  "\"model\":", "\"a\"", "null",       "1",
      "{}", "\"x\":", "\"b\"", "\"\\u0061\"", "[]", "true",       " ",     "{\"model\":"};
  int agreed = 0;
  for (uint64_t i = 0; i < 200'000; ++i) {
    std::string body = "{";
    const uint64_t length = 1 + base::random_bits(seed, i * 16) % 8;
    for (uint64_t j = 0; j < length; ++j) {
      body += kPieces[base::random_bits(seed, i * 16 + 1 + j) % std::size(kPieces)];
    }
    body += "}";
    const Result<Json> json = parse_object(body);
    if (!json.ok()) continue;
    const Result<std::string> asked = model_asked(body);
    const Json* const model = json->find("model");
    const bool is_text_or_none = model == nullptr || model->is_null() || model->is_string();
    ASSERT_EQ(asked.ok(), is_text_or_none) << body;
    if (!asked.ok()) continue;
    const std::string expected = json->string("model").value_or("");
    ASSERT_EQ(*asked, expected) << body;
    if (!expected.empty()) ++agreed;
  }
  EXPECT_GT(agreed, 100) << "few bodies had a model, by the seed " << seed;
}

}  // namespace
}  // namespace pelton::api
