#include "chat/typescript_schema.h"

#include <gtest/gtest.h>

namespace pelton::chat {
namespace {

std::string type_of(std::string_view schema) {
  return typescript_type(Json::parse(schema).value());
}

TEST(TypescriptSchema, Scalars) {
  EXPECT_EQ(type_of(R"({"type":"string"})"), "string");
  EXPECT_EQ(type_of(R"({"type":"integer"})"), "number");
  EXPECT_EQ(type_of(R"({"type":"boolean"})"), "boolean");
  EXPECT_EQ(type_of(R"({"type":["integer","null"]})"), "number | null");
  EXPECT_EQ(type_of(R"({"type":"string","enum":["a","b"]})"), R"("a" | "b")");
  EXPECT_EQ(type_of(R"({"type":"array","items":{"type":"array","items":{"type":"number"}}})"),
            "number[][]");
  EXPECT_EQ(type_of(R"({"type":"array"})"), "Array<any>");
}

TEST(TypescriptSchema, WhatItDoesNotKnowIsAny) {
  for (const char* schema : {R"({"type":"null"})", R"({"type":7})", R"({"oneOf":[]})",
                             R"({"anyOf":[{"type":"string"}]})", R"({"$ref":"#/x"})", "{}", "null",
                             "[]", "true", R"({"enum":["x"]})"}) {
    EXPECT_EQ(type_of(schema), "any") << schema;
  }
}

TEST(TypescriptSchema, OneOfOutsideOfAProperty) {
  EXPECT_EQ(type_of(R"({"oneOf":[{"type":"string","description":"d","default":"x"},
                                 {"type":"number","nullable":true}]})"),
            "\n | string // d default: \"x\"\n | number | null");
}

// Of two equal descriptions one is printed: the first variant's.
TEST(TypescriptSchema, OneOfProperty) {
  EXPECT_EQ(type_of(R"({"type":"object","properties":{"p":{"description":"d",
                        "oneOf":[{"type":"string","description":"d"},{"type":"number"}]}}})"),
            "{\np?:\n | string // d\n | number\n,\n}");
}

TEST(TypescriptSchema, OddShapesStayText) {
  EXPECT_EQ(type_of(R"({"type":"object","properties":[1],"required":"x"})"), "{\n}");
  EXPECT_EQ(type_of(R"({"type":"object","properties":{"a":3},"required":[1,"a"]})"),
            "{\na: any,\n}");
  EXPECT_EQ(type_of(R"({"type":[]})"), "any");
  EXPECT_EQ(type_of(R"({"type":"array","items":true})"), "any[]");
}

TEST(TypescriptSchema, DepthIsBounded) {
  std::string schema = R"({"type":"string"})";
  for (int i = 0; i < 100; ++i) schema = R"({"type":"array","items":)" + schema + "}";
  const std::string type = type_of(schema);
  EXPECT_TRUE(type.starts_with("any[]"));
  EXPECT_EQ(type.size(), 3u + 2u * (kSchemaDepthMax + 1));
}

TEST(CommentLines, EachLineGetsItsPrefix) {
  std::string out;
  append_comment_lines(out, "one\r\n\nthree\n");
  EXPECT_EQ(out, "// one\n// \n// three\n");
  append_comment_lines(out, "");
  EXPECT_EQ(out, "// one\n// \n// three\n");
}

}  // namespace
}  // namespace pelton::chat
