#include "chat/simplified_schema.h"

#include <gtest/gtest.h>

#include "chat/typescript_schema.h"

namespace pelton::chat {
namespace {

std::string simplified(std::string_view schema) {
  return simplified_schema(Json::parse(schema).value()).dump();
}

std::string type_of(std::string_view schema) {
  return typescript_type(simplified_schema(Json::parse(schema).value()));
}

TEST(SimplifiedSchema, OptionalParametersAsPydanticWritesThem) {
  EXPECT_EQ(
      type_of(R"({"type":"object","title":"Args","properties":{
      "city":{"type":"string","title":"City","description":"Where"},
      "days":{"anyOf":[{"type":"integer"},{"type":"null"}],"default":null,"title":"Days"},
      "unit":{"anyOf":[{"type":"string","enum":["c","f"]},{"type":"null"}],"default":"c",
              "description":"Scale"},
      "id":{"anyOf":[{"type":"string"},{"type":"integer"}]}},"required":["city","id"]})"),
      "{\n// Where\ncity: string,\ndays?: number,\n// Scale\nunit?: \"c\" | \"f\", // default: "
      "c\nid: string | number,\n}");
}

TEST(SimplifiedSchema, ReferencesAreFilledIn) {
  EXPECT_EQ(type_of(R"({"$defs":{"Place":{"type":"object","properties":{"x":{"type":"number"}}}},
      "type":"object","properties":{"at":{"$ref":"#/$defs/Place"},
      "via":{"type":"array","items":{"$ref":"#/$defs/Place"}},
      "maybe":{"anyOf":[{"$ref":"#/$defs/Place"},{"type":"null"}],"default":null},
      "lost":{"$ref":"#/$defs/None"}}})"),
            "{\nat?: {\n    x?: number,\n    },\nvia?: {\n    x?: number,\n    }[],\nmaybe?: {\n"
            "    x?: number,\n    },\nlost?: any,\n}");
}

TEST(SimplifiedSchema, RecursionStopsAtItsSecondTurn) {
  EXPECT_EQ(type_of(R"({"$defs":{"Node":{"type":"object","properties":{
      "next":{"$ref":"#/$defs/Node"}}}},"$ref":"#/$defs/Node"})"),
            "{\nnext?: any,\n}");
}

// Each definition names the next one twice: 2^40 values if one let it.
TEST(SimplifiedSchema, GrowthIsBounded) {
  std::string definitions = R"("d40":{"type":"string"})";
  for (int i = 0; i < 40; ++i) {
    const std::string next = R"({"$ref":"#/$defs/d)" + std::to_string(i + 1) + "\"}";
    definitions += ",\"d" + std::to_string(i) + R"(":{"type":"object","properties":{"a":)" + next +
                   ",\"b\":" + next + "}}";
  }
  const std::string schema = R"({"$defs":{)" + definitions + R"(},"$ref":"#/$defs/d0"})";
  EXPECT_EQ(simplified(schema), Json::parse(schema).value().dump());
}

TEST(SimplifiedSchema, PlainSchemasStayAsTheyAre) {
  for (const char* schema :
       {R"({"type":"object","properties":{"a":{"type":"string","default":"x","examples":["y"]}}})",
        R"({"oneOf":[{"type":"string"},{"type":"number","nullable":true}]})",
        R"({"anyOf":[{"type":"object"},{"type":"string"}]})", "true", "[]", "null",
        R"({"type":"object","properties":{"title":{"type":"string"}}})"}) {
    EXPECT_EQ(simplified(schema), schema);
  }
}

}  // namespace
}  // namespace pelton::chat
