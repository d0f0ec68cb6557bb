#include "base/json_visitor.h"

#include <gtest/gtest.h>

namespace pelton::base {
namespace {

// Writes what it is told; stops when it sees the string "stop".
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
