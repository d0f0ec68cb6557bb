#include "chain/expression.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::chain {
namespace {

using testing::HasSubstr;

const Json& value() {
  static const Json json = *Json::parse(
      R"({"text":"ab\u00e9","list":[{"n":1,"s":"x"},{"n":2,"s":"y"}],"n":3.5,"b":true,"none":null})");
  return json;
}

const Type& type() {
  static const Type item = Type::object({{.name = "n", .type = Type::of(Type::Kind::kInteger)},
                                         {.name = "s", .type = Type::of(Type::Kind::kText)}});
  static const Type all =
      Type::object({{.name = "text", .type = Type::of(Type::Kind::kText)},
                    {.name = "list", .type = Type::list(item)},
                    {.name = "n", .type = Type::of(Type::Kind::kNumber)},
                    {.name = "b", .type = Type::of(Type::Kind::kBoolean)},
                    {.name = "none", .type = Type::of(Type::Kind::kText).or_null()}});
  return all;
}

std::string evaluated(const std::string& text) {
  const Result<Expression> expression = parse_expression(text);
  if (!expression.ok()) return "refused: " + expression.error().message;
  const Result<Type> of = type_of(*expression, [](std::string_view) { return &type(); });
  if (!of.ok()) return "no type: " + of.error().message;
  const Result<Evaluated> result = evaluate(*expression, [](std::string_view) { return &value(); });
  if (!result.ok()) return "no value: " + result.error().message;
  EXPECT_TRUE(holds(*of, result->get())) << text << " is " << type_text(*of);
  return result->get().dump();
}

// Of 2 where it is a number, of whatever it is otherwise. The fuzz target found it.
TEST(Expression, ADefaultOfAnotherKindSaysNothingOfTheValue) {
  const auto type_of_text = [](const std::string& text) {
    const Type items = Type::object(
        {{.name = "any", .type = Type()},
         {.name = "texts", .type = Type::list(Type::of(Type::Kind::kText)).or_null()},
         {.name = "numbers", .type = Type::list(Type::of(Type::Kind::kInteger))},
         {.name = "n", .type = Type::of(Type::Kind::kNumber).or_null()},
         {.name = "a",
          .type = Type::object({{.name = "x", .type = Type()}, {.name = "y", .type = Type()}})},
         {.name = "b", .type = Type::object({{.name = "y", .type = Type()}})}});
    return type_text(*type_of(*parse_expression(text), [&](std::string_view) { return &items; }));
  };
  EXPECT_EQ(type_of_text("v.any ?? 2"), "any");
  EXPECT_EQ(type_of_text("v ?? 2 ?? 3"), "any");
  EXPECT_EQ(type_of_text("v.n ?? 2"), "number");
  EXPECT_EQ(type_of_text("v.texts ?? v.numbers"), "[any]");
  EXPECT_EQ(type_of_text("v.a ?? v.b"), "object {y}");
  EXPECT_EQ(evaluated("v ?? 2 ?? 3"), value().dump());
}

TEST(Expression, ReadsPathsAndCompares) {
  EXPECT_EQ(evaluated("v.list[0].s"), R"("x")");
  EXPECT_EQ(evaluated("v.list[-1].n"), "2");
  EXPECT_EQ(evaluated("v.list[*].s"), R"(["x","y"])");
  EXPECT_EQ(evaluated("v.n > 3 and not v.b == false"), "true");
  EXPECT_EQ(evaluated("v.n <= 3 or v.list[0].n == 1.0"), "true");
  EXPECT_EQ(evaluated("v.none ?? 'other'"), R"("other")");
  EXPECT_EQ(evaluated("v.none == null"), "true");
  EXPECT_EQ(evaluated("length(v.text)"), "3");
  EXPECT_EQ(evaluated("length(v.list) - 1"), "refused: expected the end at '- 1'");
  EXPECT_EQ(evaluated("contains(v.text, 'b')"), "true");
  EXPECT_EQ(evaluated("starts_with(v.none, 'b')"), "false");
  EXPECT_EQ(evaluated("text(v.list[0])"), R"("{\"n\":1,\"s\":\"x\"}")");
  EXPECT_EQ(evaluated("-2.5"), "-2.5");
}

TEST(Expression, SaysWhatIsWrongAndWhatWasMeant) {
  EXPECT_THAT(evaluated("v.lst"), HasSubstr("did you mean 'list'"));
  EXPECT_THAT(evaluated("v.text.x"), HasSubstr("has no fields"));
  EXPECT_THAT(evaluated("v.n[0]"), HasSubstr("no list"));
  EXPECT_THAT(evaluated("v.text > 3"), HasSubstr("must be number"));
  EXPECT_THAT(evaluated("v.list and v.b"), HasSubstr("must be boolean"));
  EXPECT_THAT(evaluated("lenght(v.text)"), HasSubstr("did you mean 'length'"));
  EXPECT_THAT(evaluated("v.list[7]"), HasSubstr("[7] of a list of 2"));
  EXPECT_THAT(evaluated("'abc"), HasSubstr("closing quote"));
  EXPECT_THAT(evaluated("v."), HasSubstr("a field's name"));
  EXPECT_THAT(evaluated(""), HasSubstr("expected a name"));
  EXPECT_THAT(evaluated("1e999"), HasSubstr("too large"));
}

TEST(Expression, IsBoundedInDepthAndLength) {
  EXPECT_THAT(evaluated(std::string(2000, '(') + "1"), HasSubstr("too deeply"));
  std::string nots;
  for (int i = 0; i < 900; ++i) nots += "not ";
  EXPECT_THAT(evaluated(nots + "v.b"), HasSubstr("too deeply"));
  EXPECT_THAT(evaluated(std::string(5000, ' ') + "1"), HasSubstr("longer than"));
  std::string path = "v";
  for (int i = 0; i < 50; ++i) path += ".a";
  EXPECT_THAT(evaluated(path), HasSubstr("too many parts"));
}

TEST(ValueType, TextsAreReadAsTheyAreWritten) {
  for (const std::string text :
       {"string", "[string]?", "[[number]]", "integer?", "any", "object"}) {
    const std::optional<Type> type = parse_type(text);
    ASSERT_TRUE(type) << text;
    EXPECT_EQ(type_text(*type), text);
  }
  for (const std::string text : {"", "text", "[", "[]", "string??", "[[[[[[[[[[string]]]]]]]]]]"}) {
    EXPECT_FALSE(parse_type(text)) << text;
  }
}

TEST(ValueType, AcceptsWhatMayStandThere) {
  const auto fits = [](const char* wanted, const char* given) {
    return accepts(*parse_type(wanted), *parse_type(given));
  };
  EXPECT_TRUE(fits("number", "integer"));
  EXPECT_TRUE(fits("string?", "string"));
  EXPECT_TRUE(fits("[number]", "[integer]"));
  EXPECT_TRUE(fits("string", "any"));
  EXPECT_FALSE(fits("integer", "number"));
  EXPECT_FALSE(fits("string", "string?"));
  EXPECT_FALSE(fits("[string]", "[integer]"));
}

}  // namespace
}  // namespace pelton::chain
