#include "base/json_visitor.h"

#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace pelton::base {
namespace {

// Writes what it is given; stops when it sees the string "stop".
class Protocol : public JsonVisitor {
 public:
  bool begin_object() override { return note("{"); }
  bool end_object() override { return note("}"); }
  bool begin_array() override { return note("["); }
  bool end_array() override { return note("]"); }
  bool key(std::string_view name) override { return note(std::string(name) + ":"); }
  bool string(std::string_view value) override {
    return note(Json(value).dump()) && value != "stop";
  }
  bool integer(int64_t value) override { return note(std::to_string(value)); }
  bool other(const Json& value) override { return note(value.dump()); }

  std::string events;

 private:
  bool note(const std::string& event) {
    events += event + " ";
    return true;
  }
};

TEST(JsonVisitor, SeesAllInOrder) {
  Protocol protocol;
  ASSERT_TRUE(visit_json(R"({"a":[1,-2.5,"x\né",null],"b":{"c":true}})", protocol).ok());
  EXPECT_EQ(protocol.events, "{ a: [ 1 -2.5 \"x\\n\xC3\xA9\" null ] b: { c: true } } ");
}

TEST(JsonVisitor, JoinsStringsThatComeInParts) {
  std::string text(5000, 'x');
  text += '\n';
  text.append(5000, 'y');
  Protocol protocol;
  ASSERT_TRUE(visit_json(Json(text).dump(), protocol).ok());
  EXPECT_EQ(protocol.events, Json(text).dump() + ' ');
}

TEST(JsonVisitor, StopsWhenTold) {
  Protocol protocol;
  const Result<void> result = visit_json(R"(["a","stop","b"])", protocol);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(protocol.events, "[ \"a\" \"stop\" ");
}

TEST(JsonVisitor, RefusesWhatIsNoJson) {
  const std::string deep(300, '[');
  for (const std::string& text : {std::string("{\"a\":1"), std::string("[1] x"), deep,
                                  std::string("[1e999]"), std::string("\"\xFF\"")}) {
    Protocol protocol;
    const Result<void> result = visit_json(text, protocol);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument) << text;
  }
}

// Counted as the builder would count: texts drawn at random, with strings full of what must not be
// counted.
TEST(JsonSizes, AreThoseOfTheContainers) {
  constexpr uint64_t kSeed = 20261121;
  uint64_t draws = 0;
  const auto draw = [&](uint64_t count) { return random_bits(kSeed, draws++) % count; };
  const auto text = [&] {
    static constexpr const char* kTexts[] = {"",     "a",      "[1,2]", "{\"a\":1}",
                                             "\\\"", "\\\\\"", ",,,",   "x\\"};
    return std::string(kTexts[draw(std::size(kTexts))]);
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<uint32_t> sizes;
    size_t values = 0;
    const auto some = [&](const auto& self, int depth) -> std::string {
      ++values;
      const uint64_t kind = depth == 0 ? 0 : draw(4);
      if (kind == 0) return std::to_string(draw(1000));
      if (kind == 1) return Json(text()).dump();
      const size_t at = sizes.size();
      sizes.push_back(static_cast<uint32_t>(draw(5)));
      std::string out = kind == 2 ? "[ " : "{";
      for (uint32_t i = 0, count = sizes[at]; i < count; ++i) {
        if (i > 0) out += draw(2) == 0 ? "," : " ,\n";
        if (kind == 3) out += Json(text()).dump() + " : ";
        out += self(self, depth - 1);
      }
      return out + (kind == 2 ? "]" : "\t}");
    };
    const std::string json = some(some, 6);
    const JsonSizes counted = count_json(json, 1'000'000);
    EXPECT_EQ(counted.containers, sizes) << json;
    EXPECT_EQ(counted.values, values) << json;
    ASSERT_TRUE(Json::parse(json).ok()) << json;
  }
}

TEST(JsonSizes, OfWhatIsNoJsonAreBounded) {
  constexpr uint64_t kSeed = 20261122;
  static constexpr char kLetters[] = "[]{},:\"\\ a1";
  for (uint64_t round = 0; round < 5000; ++round) {
    std::string text;
    for (uint64_t i = 0; i < random_bits(kSeed, round) % 60; ++i) {
      text += kLetters[random_bits(kSeed, round * 100 + i) % (sizeof(kLetters) - 1)];
    }
    const JsonSizes counted = count_json(text, 20);
    EXPECT_LE(counted.values, 21u) << text;
    EXPECT_LE(counted.containers.size(), 21u) << text;
    for (const uint32_t size : counted.containers) EXPECT_LE(size, text.size()) << text;
    static_cast<void>(Json::parse(text).ok());
  }
  EXPECT_LE(count_json(std::string(1'000'000, '['), 1'000'000).containers.size(), 300u);
  std::string pairs;
  for (int i = 0; i < 100'000; ++i) pairs += "[]";
  EXPECT_LE(count_json(pairs, 1000).containers.size(), 1001u);
}

TEST(JsonBuilder, BuildsWhatParseBuilds) {
  for (const char* text : {"3", "\"x\"", "[]", "{}", R"({"a":[1,{"b":[[],"c"]}],"d":null})"}) {
    JsonBuilder builder(100);
    ASSERT_TRUE(visit_json(text, builder).ok()) << text;
    EXPECT_TRUE(builder.done());
    EXPECT_EQ(builder.take(), Json::parse(text).value()) << text;
  }
}

TEST(JsonBuilder, StopsAtItsLimit) {
  JsonBuilder builder(3);
  EXPECT_FALSE(visit_json("[1,2,3,4]", builder).ok());
}

}  // namespace
}  // namespace pelton::base
