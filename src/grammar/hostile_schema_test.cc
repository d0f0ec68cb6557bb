// Schemas that nobody means well by (hardening 3E): each ends in an Error that names the place, or
// compiles, within a second and 64 MiB.
#include <chrono>
#include <fstream>

#include <gtest/gtest.h>

#include "grammar/compile_budget.h"
#include "grammar/json_schema.h"
#include "grammar/test_vocabulary.h"

namespace pelton::grammar {
namespace {

struct Verdict {
  bool ok = false;
  ErrorCode code = ErrorCode::kInternal;
  std::string field;
  double seconds = 0;
};

Verdict verdict(const std::string& schema) {
  const int64_t begin = CompileBudget::now_us();
  const auto grammar = compiled(schema);
  Verdict result;
  result.seconds = static_cast<double>(CompileBudget::now_us() - begin) / 1e6;
  result.ok = grammar.ok();
  if (!grammar.ok()) {
    result.code = grammar.error().code;
    result.field = grammar.error().field;
  } else {
    EXPECT_LE((*grammar)->bytes_held(), size_t{64} << 20);
  }
  // Twice the second: a test machine is not alone, and sanitizers take their time.
  EXPECT_LT(result.seconds, 2.0) << schema.substr(0, 100);
  return result;
}

void refused(const std::string& schema, ErrorCode code, const std::string& field) {
  const Verdict v = verdict(schema);
  EXPECT_FALSE(v.ok) << schema.substr(0, 200);
  EXPECT_EQ(v.code, code) << schema.substr(0, 200);
  EXPECT_EQ(v.field, field) << schema.substr(0, 200);
}

std::string repeated(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

TEST(HostileSchema, JS01_NotAnObject) {
  refused("3", ErrorCode::kInvalidArgument, "");
  refused("\"{}\"", ErrorCode::kInvalidArgument, "");
  refused("[]", ErrorCode::kInvalidArgument, "");
  refused("false", ErrorCode::kInvalidArgument, "");
  EXPECT_TRUE(verdict("true").ok);
}

TEST(HostileSchema, JS02_KeywordsOfTheWrongKind) {
  refused(R"({"type":"foo"})", ErrorCode::kInvalidArgument, "/type");
  refused(R"({"type":7})", ErrorCode::kInvalidArgument, "/type");
  refused(R"({"properties":{"a":{"required":"a"}}})", ErrorCode::kInvalidArgument,
          "/properties/a/required");
  refused(R"({"minLength":-1})", ErrorCode::kInvalidArgument, "/minLength");
  refused(R"({"multipleOf":0})", ErrorCode::kInvalidArgument, "/multipleOf");
  refused(R"({"items":{"maximum":"1"}})", ErrorCode::kInvalidArgument, "/items/maximum");
  refused(R"({"properties":[]})", ErrorCode::kInvalidArgument, "/properties");
  refused(R"({"enum":1})", ErrorCode::kInvalidArgument, "/enum");
  refused(R"({"anyOf":[]})", ErrorCode::kInvalidArgument, "/anyOf");
  refused(R"({"allOf":[1]})", ErrorCode::kInvalidArgument, "/allOf/0");
}

TEST(HostileSchema, JS04_BrokenPatterns) {
  refused(R"({"pattern":"("})", ErrorCode::kInvalidArgument, "/pattern");
  refused(R"({"pattern":"[z-a]"})", ErrorCode::kInvalidArgument, "/pattern");
  refused(R"({"patternProperties":{"\\p{Nope}":{}}})", ErrorCode::kInvalidArgument,
          "/patternProperties/\\p{Nope}");
}

TEST(HostileSchema, JS06_WhatIsNotSupportedSaysSo) {
  refused(R"({"items":{"$dynamicRef":"#x"}})", ErrorCode::kUnsupported, "/items/$dynamicRef");
  refused(R"({"allOf":[{}],"unevaluatedProperties":false})", ErrorCode::kUnsupported,
          "/unevaluatedProperties");
  refused(R"({"pattern":"(a)\\1"})", ErrorCode::kUnsupported, "/pattern");
  refused(R"({"$schema":"http://example.com/mine"})", ErrorCode::kUnsupported, "/$schema");
}

TEST(HostileSchema, JS07_Contradictions) {
  refused(R"({"type":"string","minLength":5,"maxLength":3})", ErrorCode::kInvalidArgument, "");
  refused(R"({"enum":[]})", ErrorCode::kInvalidArgument, "");
  refused(R"({"const":1,"enum":[2]})", ErrorCode::kInvalidArgument, "");
  refused(R"({"type":"integer","minimum":2,"maximum":1})", ErrorCode::kInvalidArgument, "");
  refused(R"({"type":"object","required":["a"],"properties":{"a":false}})",
          ErrorCode::kInvalidArgument, "");
  refused(R"({"type":"object","required":["a","b"],"maxProperties":1})",
          ErrorCode::kInvalidArgument, "");
  refused(R"({"type":"array","items":{"enum":[null,true]},"uniqueItems":true,"minItems":3})",
          ErrorCode::kInvalidArgument, "");
}

TEST(HostileSchema, JS08_ReferencesGoNowhere) {
  refused(R"({"$ref":"#/nope"})", ErrorCode::kInvalidArgument, "/$ref");
  refused(R"({"$ref":"http://example.com/s.json"})", ErrorCode::kUnsupported, "/$ref");
  refused(R"({"$ref":"file:///etc/passwd"})", ErrorCode::kUnsupported, "/$ref");
  refused(R"({"$ref":"#/definitions/%ZZ"})", ErrorCode::kInvalidArgument, "/$ref");
  refused(R"({"a":1,"$ref":"#/a"})", ErrorCode::kInvalidArgument, "/a");
}

TEST(HostileSchema, JS09_ReferencesInACircle) {
  EXPECT_FALSE(verdict(R"({"$ref":"#"})").ok);
  EXPECT_FALSE(verdict(R"({"allOf":[{"anyOf":[{"$ref":"#"}]}]})").ok);
  EXPECT_FALSE(verdict(R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"not":{"$ref":"#/$defs/a"}}},)"
                       R"("$ref":"#/$defs/a"})")
                   .ok);
  // No finite value is of this one.
  refused(R"({"type":"object","required":["a"],"properties":{"a":{"$ref":"#"}}})",
          ErrorCode::kInvalidArgument, "");
}

TEST(HostileSchema, JS10_RecursionIsFollowedToAnyDepth) {
  const Matcher start = matcher_of(compiled(R"({"type":"array","items":{"$ref":"#"}})").value());
  Matcher matcher = start;
  ASSERT_TRUE(matcher.accept_bytes(std::string(5000, '[')));
  EXPECT_FALSE(matcher.can_end());
  ASSERT_TRUE(matcher.accept_bytes(std::string(5000, ']')));
  EXPECT_TRUE(matcher.must_end());
}

TEST(HostileSchema, JS11_Doubling) {
  for (const char* const word : {"allOf", "anyOf", "oneOf"}) {
    std::string schema = R"({"$ref":"#/$defs/d30","$defs":{"d0":{"type":"integer"})";
    for (int i = 1; i <= 30; ++i) {
      const std::string ref = "{\"$ref\":\"#/$defs/d" + std::to_string(i - 1) + "\"}";
      schema += ",\"d" + std::to_string(i) + "\":{\"" + std::string(word) + "\":[" + ref + "," +
                ref + "]}";
    }
    verdict(schema + "}}");
  }
  std::string schema = R"({"$ref":"#/$defs/d30","$defs":{"d0":{"type":"integer"})";
  for (int i = 1; i <= 30; ++i) {
    const std::string ref = "{\"$ref\":\"#/$defs/d" + std::to_string(i - 1) + "\"}";
    schema += ",\"d" + std::to_string(i) + "\":{\"type\":\"object\",\"properties\":{\"a\":" + ref +
              ",\"b\":" + ref + "}}";
  }
  EXPECT_TRUE(verdict(schema + "}}").ok);
}

TEST(HostileSchema, JS12_Wide) {
  std::string properties;
  std::string branches;
  std::string all;
  for (int i = 0; i < 10000; ++i) {
    const std::string n = std::to_string(i);
    const std::string comma = i > 0 ? "," : "";
    properties += comma + "\"p" + n + "\":{\"type\":\"integer\"}";
    if (i < 5000) branches += comma + "{\"required\":[\"p" + n + "\"]}";
    if (i < 500) all += comma + "{\"properties\":{\"p" + n + "\":{\"minimum\":" + n + "}}}";
  }
  EXPECT_TRUE(verdict(R"({"type":"object","properties":{)" + properties + "}}").ok);
  verdict(R"({"type":"object","anyOf":[)" + branches + "]}");
  verdict(R"({"type":"object","oneOf":[)" + branches + "]}");
  EXPECT_TRUE(verdict(R"({"type":"object","allOf":[)" + all + "]}").ok);
}

TEST(HostileSchema, JS13_AHundredThousandStrings) {
  std::string schema = "{\"enum\":[";
  for (int i = 0; i < 100000; ++i) {
    schema +=
        (i > 0 ? ",\"" : "\"") + std::to_string(uint64_t(i) * 2654435761u % 1000000007u) + "\"";
  }
  verdict(schema + "]}");
}

TEST(HostileSchema, JS14_HugeBounds) {
  EXPECT_TRUE(verdict(R"({"type":"array","minItems":1000000000,"maxItems":1000000000})").ok);
  EXPECT_TRUE(verdict(R"({"type":"string","maxLength":9223372036854775807})").ok);
  verdict(R"({"type":"string","minLength":9223372036854775807})");
  verdict(R"({"type":"string","pattern":"^(a{0,100000}){0,100000}$"})");
  verdict(R"({"contains":{},"minContains":1000000000})");
}

TEST(HostileSchema, JS15_Patterns) {
  EXPECT_TRUE(verdict(R"({"pattern":"(a+)+$"})").ok);
  EXPECT_TRUE(verdict(R"({"pattern":"(.*)*x"})").ok);
  verdict(R"({"pattern":"a{1000}{1000}"})");
  verdict(R"({"pattern":"(a|b)*a(a|b){40}"})");
  verdict("{\"pattern\":\"" + std::string(1 << 20, 'a') + "\"}");
  std::string many = "{\"allOf\":[";
  for (int i = 0; i < 30; ++i) {
    many += (i > 0 ? "," : "") + std::string("{\"pattern\":\"a.{") + std::to_string(i) + "}b\"}";
  }
  verdict(many + "]}");
  std::string keys = R"({"type":"object","patternProperties":{)";
  for (int i = 0; i < 30; ++i) {
    keys += (i > 0 ? "," : "") + std::string("\"a.{") + std::to_string(i) + "}b\":{}";
  }
  verdict(keys + "}}");
}

TEST(HostileSchema, JS18_Deep) {
  verdict(repeated("{\"not\":", 200) + "{}" + repeated("}", 200));
  verdict(repeated("{\"items\":", 250) + "{}" + repeated("}", 250));
  verdict(repeated("{\"anyOf\":[{\"type\":\"null\"},", 120) + "{}" + repeated("]}", 120));
  // A chain of references is no depth of the text's.
  std::string chain = R"({"$ref":"#/$defs/r0","$defs":{)";
  for (int i = 0; i < 20000; ++i) {
    chain +=
        "\"r" + std::to_string(i) + "\":{\"$ref\":\"#/$defs/r" + std::to_string(i + 1) + "\"},";
  }
  verdict(chain + "\"r20000\":{\"type\":\"integer\"}}}");
}

TEST(HostileSchema, JS21_Numbers) {
  EXPECT_TRUE(verdict(R"({"multipleOf":0.01})").ok);
  verdict(R"({"exclusiveMinimum":1e308})");
  verdict(R"({"multipleOf":1e-300})");
  verdict(R"({"multipleOf":123456789.123})");
  EXPECT_TRUE(verdict(R"({"minimum":-9223372036854775809,"maximum":92233720368547758070})").ok);
  verdict(R"({"enum":[1e308,-1e308,1e-308]})");
}

TEST(HostileSchema, JS22_NamesAreComparedByCodePoint) {
  const Matcher start = matcher_of(
      compiled(R"({"type":"object","properties":{"\u0061":{"type":"integer"},"__proto__":{},"":{}},
                   "additionalProperties":{"type":"null"}})")
          .value());
  EXPECT_TRUE(passes(start, R"({"a":1,"__proto__":2,"":3,"b":null})"));
  EXPECT_FALSE(passes(start, R"({"a":1,"\u0061":2})"));
  EXPECT_FALSE(passes(start, R"({"\u0061":null})"));
  EXPECT_FALSE(passes(start, R"({"b":null,"\u0062":null})"));
}

TEST(HostileSchema, JS23_EveryEscapeAndNoControlCharacter) {
  const Matcher start = matcher_of(compiled(R"({"type":"string"})").value());
  EXPECT_TRUE(passes(start, R"("\"\\\/\b\f\n\r\t\u0000\uFFFF\ud834\udd1e")"));
  for (int byte = 0; byte < 0x20; ++byte) {
    EXPECT_FALSE(passes(start, "\"" + std::string(1, static_cast<char>(byte)) + "\""));
  }
  EXPECT_TRUE(passes(start, "\"\x7f\""));
}

// D3: a number is one number however it is spelled, so "5" is not begun once more where no other
// begins with it; and an array ends when no value is left.
TEST(HostileSchema, D3_UniqueNumbersNeverEndInADeadEnd) {
  const char* const kArrays[] = {
      R"({"type":"array","uniqueItems":true,"minItems":3,
          "items":{"type":"integer","minimum":0,"maximum":2}})",
      R"({"type":"array","uniqueItems":true,"minItems":8,
          "items":{"enum":[0,1,2,3,4,5,6,7,8,9,10,11]}})",
      R"({"type":"array","uniqueItems":true,"minItems":21,
          "items":{"type":"integer","minimum":-10,"maximum":10}})",
      R"({"type":"array","uniqueItems":true,"minItems":11,
          "items":{"type":"number","minimum":0,"maximum":1,"multipleOf":0.1}})",
      R"({"type":"array","uniqueItems":true,"minItems":4,"items":{"enum":[1.5,15,1.05,-1.5]}})",
      R"({"type":"array","uniqueItems":true,"minItems":7,
          "items":{"enum":[0,1,"a","ab",null,true,false]}})",
      R"({"type":"array","uniqueItems":true,"items":{"enum":[5,55,"5"]}})",
      R"({"type":"array","uniqueItems":true,"minItems":3,"contains":{"const":2},
          "items":{"enum":[1,2,3]}})",
      R"({"type":"object","properties":{"a":{"type":"array","uniqueItems":true,"minItems":2,
          "items":{"enum":[1,10]}}},"required":["a"],"additionalProperties":false})",
      R"({"type":"array","uniqueItems":true,"minItems":60,
          "items":{"type":"integer","minimum":0,"maximum":59}})",
  };
  for (const char* const schema : kArrays) {
    SCOPED_TRACE(schema);
    const Matcher start = matcher_of(compiled(schema).value());
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      Matcher matcher = start;
      uint64_t random = seed;
      std::string text;
      // Bytes that make numbers long and similar, rather than whitespace.
      for (int i = 0; i < 4000 && !matcher.must_end(); ++i) {
        std::vector<char> open;
        for (const char byte : std::string_view("0123456789.-,]\"abnultrefs[{}:")) {
          Matcher next = matcher;
          if (next.accept_bytes(std::string_view(&byte, 1))) open.push_back(byte);
        }
        ASSERT_FALSE(open.empty()) << text;
        random = random * 6364136223846793005 + 1442695040888963407;
        const char byte = open[(random >> 33) % open.size()];
        ASSERT_TRUE(matcher.accept_bytes(std::string_view(&byte, 1)));
        text += byte;
      }
      ASSERT_TRUE(matcher.must_end()) << text;
      ASSERT_TRUE(Json::parse(text).ok()) << text;
    }
  }
}

TEST(HostileSchema, D3_NumbersThatAreEqualAreNotUnique) {
  const Matcher start = matcher_of(
      compiled(R"({"type":"array","uniqueItems":true,"items":{"type":"number"}})").value());
  for (const char* const text : {"[1,1.0]", "[1.50,1.5]", "[0,-0]", "[10,10.0]", "[-0.0,0]"}) {
    EXPECT_FALSE(passes(start, text)) << text;
  }
  for (const char* const text : {"[1,1.1]", "[1.05,1.5]", "[1,10,100]", "[-1,1]", "[5,50,5.5]"}) {
    EXPECT_TRUE(passes(start, text)) << text;
  }
}

TEST(HostileSchema, D3_ArraysThatCannotBeUniqueAreRefused) {
  for (const char* const schema : {
           R"({"type":"array","uniqueItems":true,"minItems":3,"items":{"enum":[1,2]}})",
           R"({"type":"array","uniqueItems":true,"minItems":3,"items":{"enum":[1,1.0,2]}})",
           R"({"type":"array","uniqueItems":true,"minItems":4,
               "items":{"type":"integer","minimum":0,"maximum":2}})",
           R"({"type":"array","uniqueItems":true,"minItems":12,
               "items":{"type":"number","minimum":0,"maximum":1,"multipleOf":0.1}})",
           R"({"type":"array","uniqueItems":true,"minItems":4,"items":{"enum":[1,"a",null]}})",
           R"({"type":"array","uniqueItems":true,"minItems":2,
               "prefixItems":[{"const":5},{"const":5.0}]})",
           R"({"type":"array","uniqueItems":true,"minItems":3,"items":{"type":"boolean"}})",
           R"({"type":"array","uniqueItems":true,"contains":{"const":1},"minContains":2})",
       }) {
    EXPECT_FALSE(compiled(schema).ok()) << schema;
  }
}

}  // namespace
}  // namespace pelton::grammar
