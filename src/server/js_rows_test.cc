// The catalogue of hostile schemas, grammars and expressions, row by row over HTTP: what is refused
// is refused with 400, its field and its place before any token; what is taken is followed. The
// compilers' own tests have the rows in detail (grammar/hostile_schema_test.cc, ebnf_test.cc).
#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/json_writer.h"
#include "base/sanitized.h"
#include "base/utf8.h"
#include "grammar/json_schema.h"
#include "grammar/matcher.h"
#include "server/any_turns.h"
#include "server/server_fixture.h"

namespace pelton::server {
namespace {

constexpr std::string_view kNoScript = R"({"rules":[{"when":"","then":"x"}]})";

std::string asked(std::string_view more, int max_tokens) {
  return R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":)" +
         std::to_string(max_tokens) + "," + std::string(more) + "}";
}

std::string by_schema(std::string_view schema) {
  return R"("response_format":{"type":"json_schema","json_schema":{"name":"it","schema":)" +
         std::string(schema) + "}}";
}

std::string json_text(std::string_view text) {
  std::string out;
  base::append_json_string(out, text);
  return out;
}

class JsRows : public testing::Test {
 protected:
  // 400, and what the error says.
  void refused(std::string_view format, std::string_view param, std::string_view place) {
    const net::HttpResponse response = fixture_.post("/v1/chat/completions", asked(format, 50));
    ASSERT_EQ(response.status, 400) << format.substr(0, 200) << response.body.substr(0, 300);
    const Json body = parsed(response.body);
    const Json& error = *body.find("error");
    EXPECT_EQ(error.string("param"), param) << response.body;
    EXPECT_NE(error.string("message").value_or("").find(place), std::string::npos) << response.body;
  }
  void schema_refused(std::string_view schema, std::string_view place) {
    refused(by_schema(schema), "response_format.json_schema.schema", place);
  }
  // Answered or refused, and in time: a second by the compilers' own limits, on busy machines more.
  void bounded(std::string_view format) {
    const auto begin = std::chrono::steady_clock::now();
    const net::HttpResponse response = fixture_.post("/v1/chat/completions", asked(format, 3));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_TRUE(response.status == 200 || response.status == 400)
        << format.substr(0, 200) << response.status;
    EXPECT_LT(took.count(), 20.0 * base::kSanitizedSlowness) << format.substr(0, 200);
  }
  // The documents that end by themselves, of several drawn ones.
  std::vector<std::string> documents(std::string_view format, int count) {
    std::vector<std::string> all;
    for (int seed = 0; seed < count; ++seed) {
      const net::HttpResponse response =
          fixture_.post("/v1/chat/completions",
                        asked(std::string(format) + ",\"seed\":" + std::to_string(seed), 2000));
      EXPECT_EQ(response.status, 200) << response.body;
      if (response.status != 200) return all;
      const Json body = parsed(response.body);
      const Json& choice = body.find("choices")->as_array().at(0);
      if (choice.string("finish_reason") != "stop") continue;
      all.push_back(choice.find("message")->string("content").value_or(""));
    }
    return all;
  }

  ServerFixture fixture_{kNoScript, any_options()};
};

TEST_F(JsRows, JS_01_TrueFalseAndNoSchema) {
  schema_refused("7", "must be a JSON schema");
  schema_refused("[]", "must be a JSON schema");
  schema_refused("false", "at '/'");
  for (const std::string& text : documents(by_schema("true"), 4)) {
    EXPECT_TRUE(Json::parse(text).ok()) << text;
  }
}

TEST_F(JsRows, JS_02_KeywordsOfTheWrongKind) {
  schema_refused(R"({"type":"foo"})", "'/type'");
  schema_refused(R"({"type":7})", "'/type'");
  schema_refused(R"({"required":"a"})", "'/required'");
  schema_refused(R"({"properties":{"x":{"minLength":-1}}})", "'/properties/x/minLength'");
  schema_refused(R"({"multipleOf":0})", "'/multipleOf'");
}

TEST_F(JsRows, JS_03_ASchemaInAStringThatIsBroken) {
  schema_refused(R"("{\"type\":")", "not JSON");
  refused(R"("structured_outputs":{"json":"{"})", "structured_outputs.json", "not JSON");
}

TEST_F(JsRows, JS_04_BrokenPatterns) {
  for (const std::string pattern : {"(", "[z-a]", "\\\\p{Nope}", "a{2,1}"}) {
    schema_refused(R"({"type":"string","pattern":")" + pattern + "\"}", "'/pattern'");
    refused(R"("structured_outputs":{"regex":")" + pattern + "\"}", "structured_outputs.regex",
            "structured_outputs.regex");
  }
}

TEST_F(JsRows, JS_05_ToolsWithABrokenSchema) {
  for (const std::string_view choice : {"", R"(,"tool_choice":"required")"}) {
    refused(R"("tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":)"
            R"({"type":"object","properties":{"a":{"type":"foo"}}}}}])" +
                std::string(choice),
            "tools[0].function.parameters", "'/properties/a/type'");
  }
}

TEST_F(JsRows, JS_06_WhatIsNotSupportedIsNeverIgnored) {
  schema_refused(R"({"type":"string","pattern":"(a)\\1"})", "'/pattern'");
  schema_refused(R"({"allOf":[{"properties":{"a":{}}}],"unevaluatedProperties":false})",
                 "'/unevaluatedProperties'");
  schema_refused(R"({"properties":{"a":{"$dynamicRef":"#x"}}})", "'/properties/a/$dynamicRef'");
  schema_refused(R"({"type":"string","format":"idn-hostname"})", "'/format'");
  for (const std::string& text : documents(
           by_schema(R"({"not":{"type":["object","array","number","boolean","null"]}})"), 4)) {
    EXPECT_EQ(text[0], '"') << text;
  }
}

TEST_F(JsRows, JS_07_Contradictions) {
  schema_refused(R"({"type":"string","minLength":5,"maxLength":3})", "at '/");
  schema_refused(R"({"enum":[]})", "at '/");
  schema_refused(R"({"const":1,"enum":[2]})", "at '/");
}

TEST_F(JsRows, JS_08_ReferencesThatLeadNowhere) {
  for (const std::string_view reference :
       {"#/nowhere", "http://localhost/x", "file:///etc/passwd", "#/definitions/%ZZ"}) {
    schema_refused(R"({"$ref":")" + std::string(reference) + "\"}", "'/$ref'");
  }
}

TEST_F(JsRows, JS_09_ReferencesInACircle) {
  schema_refused(R"({"$ref":"#"})", "at '/");
  schema_refused(R"({"$ref":"#/$defs/a","$defs":{"a":{"allOf":[{"$ref":"#/$defs/a"}]}}})", "at '/");
}

TEST_F(JsRows, JS_10_RecursionEndsWithTheBudget) {
  const std::string tree =
      R"({"type":"array","items":{"anyOf":[{"$ref":"#"},{"type":"null"}]},"minItems":40})";
  const net::HttpResponse response =
      fixture_.post("/v1/chat/completions", asked(by_schema(tree) + ",\"seed\":1", 60));
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_NE(response.body.find(R"("finish_reason":"length")"), std::string::npos);
}

TEST_F(JsRows, JS_11_Doubling) {
  std::string schema = R"({"$ref":"#/$defs/d0","$defs":{"d30":{"type":"null"})";
  for (int i = 0; i < 30; ++i) {
    const std::string next = R"({"$ref":"#/$defs/d)" + std::to_string(i + 1) + "\"}";
    schema += ",\"d" + std::to_string(i) + R"(":{"anyOf":[)" + next + "," + next +
              R"(],"allOf":[)" + next + "]}";
  }
  bounded(by_schema(schema + "}}"));
}

TEST_F(JsRows, JS_12_Wide) {
  std::string properties, all, any;
  for (int i = 0; i < 10'000; ++i) {
    const std::string comma = i > 0 ? "," : "";
    properties += comma + "\"p" + std::to_string(i) + "\":{}";
    if (i < 500) all += comma + R"({"not":{"const":)" + std::to_string(i) + "}}";
    if (i < 5'000) any += comma + R"({"properties":{"k":{"const":)" + std::to_string(i) + "}}}";
  }
  bounded(by_schema(R"({"type":"object","properties":{)" + properties + "}}"));
  bounded(by_schema(R"({"allOf":[)" + all + "]}"));
  bounded(by_schema(R"({"anyOf":[)" + any + "]}"));
  bounded(by_schema(R"({"oneOf":[)" + any + "]}"));
}

TEST_F(JsRows, JS_13_AHundredThousandStrings) {
  std::string many;
  for (int i = 0; i < 100'000; ++i) many += (i > 0 ? ",\"v" : "\"v") + std::to_string(i) + "\"";
  bounded(by_schema(R"({"enum":[)" + many + "]}"));
  bounded(R"("structured_outputs":{"choice":[)" + many + "]}");
}

TEST_F(JsRows, JS_14_HugeBounds) {
  bounded(by_schema(R"({"type":"array","minItems":1000000000,"maxItems":1000000000})"));
  bounded(by_schema(R"({"type":"string","maxLength":9223372036854775808})"));
  bounded(R"("structured_outputs":{"regex":"((a{0,100000}){0,100000})*b"})");
  bounded(R"("structured_outputs":{"grammar":"root ::= (\"a\"{0,100000}){0,100000}"})");
}

TEST_F(JsRows, JS_15_PatternsThatExplode) {
  for (const std::string_view pattern : {"(a+)+$", "(.*)*x", "a{1000}{1000}", "(a|a?)+b"}) {
    bounded(R"("structured_outputs":{"regex":")" + std::string(pattern) + "\"}");
    bounded(by_schema(R"({"type":"string","pattern":")" + std::string(pattern) + "\"}"));
  }
}

// Looking around is regular, and is followed.
TEST_F(JsRows, JS_16_BackReferencesAndLookAround) {
  refused(R"("structured_outputs":{"regex":"(a)\\1"})", "structured_outputs.regex", "");
  refused(R"("structured_outputs":{"regex":"(?<n>a)\\k<n>"})", "structured_outputs.regex", "");
  for (const std::string& text :
       documents(R"("structured_outputs":{"regex":"(?=[ab])[a-d](?!c)[cd]"})", 4)) {
    EXPECT_TRUE(text == "ad" || text == "bd") << text;
  }
}

TEST_F(JsRows, JS_17_LeftRecursion) {
  refused(R"("structured_outputs":{"grammar":"root ::= root"})", "structured_outputs.grammar", "");
  refused(R"("structured_outputs":{"grammar":"root ::= a \"x\"\na ::= root \"y\" | \"z\""})",
          "structured_outputs.grammar", "left recursion");
}

TEST_F(JsRows, JS_18_ThirtyThousandParentheses) {
  const std::string open(30'000, '(');
  refused(R"("structured_outputs":{"regex":")" + open + "\"}", "structured_outputs.regex", "");
  refused(R"("structured_outputs":{"grammar":"root ::= )" + open + "\"}",
          "structured_outputs.grammar", "");
  std::string deep;
  for (int i = 0; i < 10'000; ++i) deep += R"({"items":)";
  const net::HttpResponse response = fixture_.post(
      "/v1/chat/completions", asked(by_schema(deep + "1" + std::string(10'000, '}')), 3));
  EXPECT_EQ(response.status, 400);
}

TEST_F(JsRows, JS_19_EmptyRepeats) {
  bounded(R"("structured_outputs":{"grammar":"root ::= (\"\"*)* \"a\""})");
  bounded(R"("structured_outputs":{"regex":"(()*)*a"})");
}

TEST_F(JsRows, JS_20_RulesOfAbsurdNamesAndNumbers) {
  const auto grammar_refused = [&](const std::string& text) {
    refused(R"("structured_outputs":{"grammar":)" + json_text(text) + "}",
            "structured_outputs.grammar", "structured_outputs.grammar");
  };
  grammar_refused(std::string(1'000'000, 'a') + " ::= \"b\"");
  std::string rules = "root ::= r0\n";
  for (int i = 0; i < 50'000; ++i) {
    rules += "r" + std::to_string(i) + " ::= \"x\" r" + std::to_string(i + 1) + "\n";
  }
  grammar_refused(rules);
  grammar_refused("root ::= \"\\q\"");
  grammar_refused("root ::= \"\\x4\"");
  grammar_refused("root ::= \"\\uD800\"");
  grammar_refused(std::string("root ::= \"a\0b\"", 14));
  grammar_refused("");
}

TEST_F(JsRows, JS_21_Numbers) {
  for (const std::string& text :
       documents(by_schema(R"({"type":"number","multipleOf":0.01,"minimum":0,"maximum":3})"), 8)) {
    const Result<Json> json = Json::parse(text);
    ASSERT_TRUE(json.ok()) << text;
    const double hundredths = json->as_number() * 100;
    EXPECT_NEAR(hundredths, std::round(hundredths), 1e-9) << text;
    EXPECT_TRUE(json->as_number() >= 0 && json->as_number() <= 3) << text;
  }
  const std::string big = R"({"type":"integer","minimum":9223372036854775809,)"
                          R"("maximum":9223372036854775999})";
  const net::HttpResponse response =
      fixture_.post("/v1/chat/completions", asked(by_schema(big), 2000));
  EXPECT_TRUE(response.status == 200 || response.status == 400) << response.body;
  const net::HttpResponse steep = fixture_.post(
      "/v1/chat/completions",
      asked(by_schema(R"({"type":"number","exclusiveMinimum":1e308})") + ",\"seed\":2", 2000));
  if (steep.status == 400) return;
  ASSERT_EQ(steep.status, 200) << steep.body;
  const Json body = parsed(steep.body);
  const Json& choice = body.find("choices")->as_array().at(0);
  if (choice.string("finish_reason") != "stop") return;
  const Json number = parsed(choice.find("message")->string("content").value_or(""));
  EXPECT_GT(number.as_number(), 1e308);
}

TEST_F(JsRows, JS_22_NamesAreWhatTheyMean) {
  const std::string schema =
      R"({"type":"object","properties":{"__proto__":{"const":1},"":{"const":2},)"
      R"("\u00e9\"":{"const":3}},"required":["__proto__","","\u00e9\""],)"
      R"("additionalProperties":{"const":4},"maxProperties":5})";
  for (const std::string& text : documents(by_schema(schema), 6)) {
    const Result<Json> json = Json::parse(text);
    ASSERT_TRUE(json.ok()) << text;
    EXPECT_EQ(json->integer("__proto__"), 1) << text;
    EXPECT_EQ(json->integer(""), 2) << text;
    EXPECT_EQ(json->integer("\u00e9\""), 3) << text;
    // Of a key that came twice, under any spelling, the parser keeps one.
    size_t colons = 0;
    bool inside = false;
    for (size_t i = 0; i < text.size(); ++i) {
      if (inside && text[i] == '\\') {
        ++i;
      } else if (text[i] == '"') {
        inside = !inside;
      } else if (!inside && text[i] == ':') {
        ++colons;
      }
    }
    EXPECT_EQ(json->as_object().size(), colons) << text;
  }
}

// What any string may hold: read back by a parser that knows nothing of the grammar. npm's ajv does
// the same with the served model (tests/structured_output).
TEST_F(JsRows, JS_23_StringsReadBack) {
  int escapes = 0;
  for (const std::string& text : documents(
           by_schema(R"({"type":"array","items":{"type":"string","minLength":8},"minItems":4})"),
           12)) {
    ASSERT_TRUE(Json::parse(text).ok()) << text;
    ASSERT_TRUE(base::is_valid_utf8(text)) << text;
    bool inside = false;
    for (size_t i = 0; i < text.size(); ++i) {
      if (inside) {
        ASSERT_GE(static_cast<uint8_t>(text[i]), 0x20) << text;
      }
      if (inside && text[i] == '\\') {
        ++escapes;
        ++i;
      } else if (text[i] == '"') {
        inside = !inside;
      }
    }
  }
  EXPECT_GT(escapes, 0);
}

// 100 000 in --full: see GrammarStore in structured_output_test.cc.
TEST_F(JsRows, JS_24_ManyDifferentSchemas) {
  for (int i = 0; i < 300; ++i) {
    const net::HttpResponse response = fixture_.post(
        "/v1/chat/completions", asked(by_schema(R"({"const":)" + std::to_string(i) + "}"), 200));
    ASSERT_EQ(response.status, 200) << response.body;
  }
  EXPECT_LE(fixture_.model().state->grammars.entry_count(), 512u);
}

// An answer that its grammar does not allow, forced: this request fails, those beside it go on.
TEST(JsRow, JS_25_AFaultFailsItsRequestAlone) {
  ServerFixture fixture(R"({"rules":[
    {"when":"bad","then":"<|channel|>final<|message|>Not JSON.<|return|>"},
    {"when":"","then":"<|channel|>final<|message|>{}<|return|>"}]})",
                        {});
  for (int i = 0; i < 6; ++i) {
    const std::string content = i % 2 == 0 ? "bad" : "good";
    const net::HttpResponse response = fixture.post(
        "/v1/chat/completions", R"({"messages":[{"role":"user","content":")" + content +
                                    R"("}],"response_format":{"type":"json_object"}})");
    EXPECT_EQ(response.status, i % 2 == 0 ? 500 : 200) << response.body;
  }
}

TEST_F(JsRows, JS_26_WhatIsCutOffSaysSo) {
  const net::HttpResponse response = fixture_.post(
      "/v1/chat/completions", asked(R"("structured_outputs":{"regex":"a{500}"},"seed":1)", 30));
  ASSERT_EQ(response.status, 200);
  EXPECT_NE(response.body.find(R"("finish_reason":"length")"), std::string::npos) << response.body;
}

// Preemption and swapping: engine's Guided.making_room_changes_nothing, executor's SameAnswers.
TEST_F(JsRows, JS_27_TheSameSeedGivesTheSameBytes) {
  const std::string format = by_schema(R"({"type":"object","required":["a"]})");
  EXPECT_EQ(documents(format, 4), documents(format, 4));
}

// A tokenizer without a byte is refused when it is loaded (tokenizer's hostile_test). A place where
// nothing is allowed, which this schema can lead into: an error, never any token.
TEST_F(JsRows, JS_28_AStuckMaskIsAnError) {
  const std::string format =
      by_schema(R"({"type":"array","items":{"enum":[1,10]},"uniqueItems":true,"minItems":2})");
  int stuck = 0;
  for (int seed = 0; seed < 40; ++seed) {
    const net::HttpResponse response = fixture_.post(
        "/v1/chat/completions", asked(format + ",\"seed\":" + std::to_string(seed), 2000));
    if (response.status == 500) {
      ++stuck;
      continue;
    }
    ASSERT_EQ(response.status, 200) << response.body;
    const Json body = parsed(response.body);
    const Json& choice = body.find("choices")->as_array().at(0);
    if (choice.string("finish_reason") != "stop") continue;
    const Json items = parsed(choice.find("message")->string("content").value_or(""));
    ASSERT_EQ(items.as_array().size(), 2u);
    EXPECT_EQ(items.as_array()[0].as_number() + items.as_array()[1].as_number(), 11);
  }
  EXPECT_LT(stuck, 40);
  EXPECT_EQ(fixture_.get("/health").status, 200);
}

}  // namespace
}  // namespace pelton::server
