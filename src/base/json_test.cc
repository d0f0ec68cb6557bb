#include "base/json.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include <gtest/gtest.h>

#include "base/json_writer.h"

namespace pelton {
namespace {

Json parsed(std::string_view text) {
  Result<Json> json = Json::parse(text);
  EXPECT_TRUE(json.ok()) << text << ": " << (json.ok() ? "" : json.error().message);
  return json.ok() ? *json : Json();
}

TEST(Json, ReadsEveryKindAndKeepsOrder) {
  const Json json = parsed(R"({"z":1,"a":[true,null,-2.5,"x\u00e9\n"],"m":{"k":"v"}})");
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json.as_object()[0].key, "z");
  EXPECT_EQ(json.integer("z"), 1);
  EXPECT_EQ(json.find("a")->as_array().size(), 4u);
  EXPECT_EQ(json.find("a")->as_array()[3].as_string(), "x\xC3\xA9\n");
  EXPECT_EQ(json.find("m")->string("k"), "v");
  EXPECT_EQ(json.dump(), "{\"z\":1,\"a\":[true,null,-2.5,\"x\xC3\xA9\\n\"],\"m\":{\"k\":\"v\"}}");
}

TEST(Json, LastOfDuplicateKeysWins) {
  EXPECT_EQ(parsed(R"({"a":1,"a":2})").integer("a"), 2);
}

TEST(Json, DepthIsBounded) {
  const std::string deep_enough(Json::kDepthMax, '[');
  const std::string ok = deep_enough + std::string(Json::kDepthMax, ']');
  EXPECT_TRUE(Json::parse(ok).ok());
  const std::string too_deep = "[" + ok + "]";
  const Result<Json> result = Json::parse(too_deep);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("256"), std::string::npos);
  EXPECT_FALSE(Json::parse(std::string(1 << 20, '[')).ok());
}

TEST(Json, ValuesAreBounded) {
  const auto zeros = [](size_t count) {
    std::string text = "[0";
    for (size_t i = 1; i < count; ++i) text += ",0";
    return text + "]";
  };
  EXPECT_TRUE(Json::parse(zeros(Json::kValuesMax - 1)).ok());  // and the array itself
  const Result<Json> result = Json::parse(zeros(Json::kValuesMax));
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("1000000 values"), std::string::npos);
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* text : {"", " ", "{", "[1,]", "{\"a\":1,}", "nan", "1e400", "'a'", "01",
                           "\"\\ud800\"", "\"\xFF\"", "{} x", "[1] [2]", "\"\x01\"", "tru"}) {
    EXPECT_FALSE(Json::parse(text).ok()) << text;
  }
}

TEST(Json, NumbersReadBackEqual) {
  EXPECT_EQ(Json(0.1).dump(), "0.1");
  EXPECT_EQ(Json(1e300).dump(), "1e+300");
  EXPECT_EQ(Json(2.0).dump(), "2.0");
  EXPECT_EQ(Json(int64_t{-9007199254740993}).dump(), "-9007199254740993");
  EXPECT_EQ(parsed("12345678901234567890").as_number(), 12345678901234567890.0);
  EXPECT_EQ(parsed("{\"a\":3.0}").integer("a"), 3);
  EXPECT_FALSE(parsed("{\"a\":3.5}").integer("a").has_value());
}

TEST(JsonWriter, EscapesAndMendsStrings) {
  std::string out;
  base::append_json_string(out, std::string_view("a\"\\\x01\x7F\xFF\xE2\x82", 8));
  EXPECT_EQ(out, "\"a\\\"\\\\\\u0001\x7F\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

TEST(Json, NumbersAreReadAsTheirDigitsSay) {
  EXPECT_EQ(Json::parse("1795929380.4986553")->as_number(), 1795929380.4986553);
  uint64_t bits = 0x9E3779B97F4A7C15;
  for (int i = 0; i < 20'000; ++i) {
    bits = bits * 6364136223846793005u + 1442695040888963407u;
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    const Result<Json> read = Json::parse(Json(value).dump());
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(read->as_number(), value);
  }
}

TEST(Json, SetAddsAndReplaces) {
  Json json;
  json.set("a", 1).set("b", "x").set("a", 2);
  EXPECT_EQ(json.dump(), R"({"a":2,"b":"x"})");
}

}  // namespace
}  // namespace pelton
