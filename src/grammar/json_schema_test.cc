#include "grammar/json_schema.h"

#include <gtest/gtest.h>

#include "grammar/test_vocabulary.h"

namespace pelton::grammar {
namespace {

struct Case {
  const char* schema;
  std::vector<const char*> valid;
  std::vector<const char*> invalid;
};

void check(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    SCOPED_TRACE(one.schema);
    const auto grammar = compiled(one.schema);
    ASSERT_TRUE(grammar.ok()) << grammar.error().message << " at " << grammar.error().field;
    const Matcher start = matcher_of(*grammar);
    for (const char* text : one.valid) EXPECT_TRUE(passes(start, text)) << text;
    for (const char* text : one.invalid) EXPECT_FALSE(passes(start, text)) << text;
  }
}

TEST(JsonSchema, AnyJson) {
  check({{"true",
          {"1", "-0.5e+10", "null", "true", "false", R"("")", "[]", "{}", R"({"a":[{}, 1 ]})",
           R"("\u00e9\n\"\\\/\b\f\r\t")", R"("\ud83d\ude00")", "\"\xC3\xA9\"", "[ 1,\n 2 ]"},
          {"",         "01",       "1.",          ".5",          "+1",
           "nul",      "tru",      "[1,]",        "{,}",         R"({"a":1,"a":2})",
           "{1:2}",    R"("\x")",  R"("\ud83d")", R"("\ude00")", "\"\n\"",
           "\"\xC3\"", "\"\xFF\"", "1 2",         " 1",          R"({"a":1,"\u0061":2})",
           "'a'",      "NaN",      "\"\x01\""}},
         {"{}", {"1", "{}"}, {"", "x"}}});
}

TEST(JsonSchema, Type) {
  check(
      {{R"({"type":"null"})", {"null"}, {"true", "0", "\"null\""}},
       {R"({"type":"boolean"})", {"true", "false"}, {"null", "0"}},
       {R"({"type":"integer"})", {"0", "-0", "12", "1.0", "-5.00"}, {"1.5", "1e2", "01", "\"1\""}},
       {R"({"type":"number"})", {"0", "1.5", "1e2", "-2.5E-3"}, {"1.", "\"1\"", "true"}},
       {R"({"type":"string"})", {R"("a")"}, {"1", "a"}},
       {R"({"type":"array"})", {"[]", "[1,\"a\",[]]"}, {"{}", "[1"}},
       {R"({"type":"object"})", {"{}", R"({"a":1,"b":{}})"}, {"[]", "{\"a\"}"}},
       {R"({"type":["integer","null"]})", {"1", "null"}, {"1.5", "\"\""}},
       {R"({"type":["integer","number"]})", {"1", "1.5"}, {"null"}},
       // Draft 4's integers have no fraction, however small.
       {R"({"$schema":"http://json-schema.org/draft-04/schema#","type":"integer"})",
        {"1"},
        {"1.0"}}});
}

TEST(JsonSchema, EnumAndConst) {
  check({{R"({"enum":["a","ab",1,1.5,null,true,[1,{"a":null}],{"x":"y"}]})",
          {"\"a\"", "\"ab\"", "1", "1.0", "1.5", "1.50", "null", "true", R"([1,{"a":null}])",
           R"({"x":"y"})", R"([ 1.0, { "a" : null } ])"},
          {"\"b\"", "2", "1.05", "false", "[]", R"([1,{}])", "{}", R"({"x":"z"})",
           R"({"x":"y","z":1})", "\"abc\""}},
         {R"({"const":"é\n"})", {R"("é\n")", R"("é\u000a")"}, {"\"e\"", "\"é\n\""}},
         {R"({"const":0})", {"0", "-0", "0.0"}, {"1", "false"}},
         {R"({"const":{"a":1,"b":2}})", {R"({"b":2,"a":1})"}, {R"({"a":1})"}},
         {R"({"const":1,"enum":[1,2]})", {"1"}, {"2"}}});
}

TEST(JsonSchema, Strings) {
  check({{R"({"type":"string","minLength":2,"maxLength":3})",
          {"\"ab\"", "\"éé\"", R"("\n\ud83d\ude00")", "\"abc\""},
          {"\"a\"", "\"abcd\"", "\"é\"", "\"\""}},
         {R"({"type":"string","maxLength":0})", {"\"\""}, {"\"a\""}},
         {R"({"type":"string","pattern":"^a.c$"})", {"\"abc\"", "\"aéc\""}, {"\"ac\"", "\"abcd\""}},
         {R"({"type":"string","pattern":"b"})", {"\"abc\""}, {"\"ac\""}},
         {R"({"type":"string","pattern":"^\\n$"})", {R"("\n")", R"("\u000a")"}, {"\"n\"", "\"\""}},
         {R"({"type":"string","pattern":"^\"$"})", {R"("\"")"}, {"\"\"", "\"\"\""}},
         {R"({"type":"string","format":"date"})", {"\"2024-02-29\""}, {"\"2023-02-29\"", "\"x\""}},
         {R"({"type":"string","format":"nothing-we-know"})", {"\"x\""}, {"1"}},
         {R"({"minLength":2})", {"1", "\"ab\"", "[]"}, {"\"a\""}}});
}

TEST(JsonSchema, Numbers) {
  check({{R"({"type":"integer","minimum":-2,"maximum":10})",
          {"-2", "0", "10", "9.0"},
          {"-3", "11", "100", "1.5"}},
         {R"({"type":"number","exclusiveMinimum":0})", {"0.1", "1", "1e-06"}, {"0", "-1", "-0"}},
         {R"({"type":"number","minimum":0})", {"0", "1e-7", "2.5"}, {"-1", "-1e-7"}},
         {R"({"minimum":1.5,"exclusiveMaximum":2})", {"1.5", "1.99", "\"a\""}, {"1.4", "2", "2.0"}},
         {R"({"$schema":"http://json-schema.org/draft-04/schema#","minimum":1,
              "exclusiveMinimum":true})",
          {"2", "1.1"},
          {"1", "1.0"}},
         {R"({"multipleOf":3})", {"0", "3", "-9", "3.0", "12"}, {"1", "3.5", "10"}},
         {R"({"multipleOf":0.01})", {"0.1", "1", "4.25", "0.070"}, {"0.001", "4.255"}},
         {R"({"multipleOf":2.5})", {"2.5", "5", "7.50"}, {"1", "2.6"}},
         {R"({"type":"integer","multipleOf":1e-8})", {"12391239123"}, {"0.5"}},
         {R"({"not":{"const":5},"type":"number"})", {"4", "5.1"}, {"5", "5.0"}}});
}

TEST(JsonSchema, Objects) {
  check({{R"({"properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a"]})",
          {R"({"a":1})", R"({"b":"","a":1})", R"({"a":1,"c":[]})", R"({"c":1,"a":1})", "[]"},
          {"{}", R"({"a":"x"})", R"({"b":""})", R"({"a":1,"b":2})", R"({"a":1,"a":1})",
           R"({"c":1,"a":1,"c":2})"}},
         {R"({"type":"object","properties":{"a":{},"ab":{}},"additionalProperties":false})",
          {"{}", R"({"ab":1,"a":2})", R"({"a":1})"},
          {R"({"abc":1})", R"({"b":1})", R"({"":1})", R"({"a":1,})"}},
         {R"({"type":"object","additionalProperties":{"type":"null"},"properties":{"a":false}})",
          {"{}", R"({"b":null,"c":null})"},
          {R"({"a":null})", R"({"b":1})"}},
         {R"({"type":"object","patternProperties":{"^x":{"type":"integer"},"y$":{"minimum":5}},
            "additionalProperties":false})",
          {R"({"x":1})", R"({"y":7})", R"({"xy":5})", R"({"y":"a"})"},
          {R"({"xy":4})", R"({"z":1})", R"({"x":1.5})"}},
         {R"({"type":"object","propertyNames":{"pattern":"^[a-c]+$","maxLength":2}})",
          {R"({"ab":1,"c":2})", "{}"},
          {R"({"d":1})", R"({"abc":1})"}},
         {R"({"type":"object","minProperties":1,"maxProperties":2})",
          {R"({"a":1})", R"({"a":1,"b":2})"},
          {"{}", R"({"a":1,"b":2,"c":3})"}},
         {R"({"type":"object","required":["z"],"maxProperties":2})",
          {R"({"a":1,"z":1})", R"({"z":1})"},
          {R"({"a":1,"b":1})", "{}"}},
         {R"({"type":"object","dependentRequired":{"a":["b","c"]}})",
          {"{}", R"({"b":1})", R"({"c":1,"a":2,"b":3})"},
          {R"({"a":1})", R"({"a":1,"b":2})"}},
         {R"({"type":"object","dependencies":{"a":["b"],"c":{"minProperties":3}}})",
          {R"({"a":1,"b":1})", R"({"c":1,"x":1,"y":1})"},
          {R"({"a":1})", R"({"c":1})"}},
         {R"({"type":"object","dependentSchemas":{"a":{"properties":{"b":{"type":"integer"}}}}})",
          {R"({"b":"x"})", R"({"a":1,"b":2})"},
          {R"({"a":1,"b":"x"})", R"({"b":"x","a":1})"}},
         {R"({"type":"object","properties":{"a":{}},"unevaluatedProperties":false})",
          {R"({"a":1})"},
          {R"({"b":1})"}},
         {R"({"type":"object","properties":{"__proto__":{"type":"null"},"":{"type":"integer"},
            "a\"b":{},"é":{}},"additionalProperties":false})",
          {R"({"__proto__":null,"":1,"a\"b":2,"é":3})"},
          {R"({"a":1})", R"({"":"x"})"}}});
}

TEST(JsonSchema, ManyProperties) {
  // More than a word of bits.
  std::string schema = R"({"type":"object","additionalProperties":false,"required":["k7","k199"],)"
                       R"("properties":{)";
  std::string all = "{";
  for (int i = 199; i >= 0; --i) {
    schema += "\"k" + std::to_string(i) + "\":{\"type\":\"integer\"}" + (i > 0 ? "," : "}}");
    all += "\"k" + std::to_string(i) + "\":1" + (i > 0 ? "," : "}");
  }
  const Matcher start = matcher_of(compiled(schema).value());
  EXPECT_TRUE(passes(start, all));
  EXPECT_TRUE(passes(start, R"({"k199":1,"k7":2})"));
  EXPECT_FALSE(passes(start, R"({"k199":1})"));
  EXPECT_FALSE(passes(start, R"({"k199":1,"k7":2,"k199":3})"));
  EXPECT_FALSE(passes(start, R"({"k199":1,"k7":2,"k200":3})"));
}

TEST(JsonSchema, Arrays) {
  check({{R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":2})",
          {"[1]", "[1,2]"},
          {"[]", "[1,2,3]", "[\"a\"]"}},
         {R"({"prefixItems":[{"type":"string"},{"type":"integer"}],"items":false})",
          {"[]", R"(["a"])", R"(["a",1])", "{}"},
          {R"(["a",1,2])", "[1]"}},
         {R"({"items":[{"type":"string"}],"additionalItems":{"type":"null"}})",
          {R"(["a",null,null])", "[]"},
          {R"(["a",1])", "[null]"}},
         {R"({"contains":{"type":"integer"},"minContains":2,"maxContains":3})",
          {"[1,2]", R"(["a",1,"b",2,3])"},
          {"[1]", "[1,2,3,4]", "[]"}},
         {R"({"contains":{"const":1}})", {"[1]", "[2,1,3]"}, {"[]", "[2]"}},
         {R"({"uniqueItems":true})",
          {"[]", "[1,2,\"1\",[1],{\"a\":1},true]", "[[1,2],[2,1]]", "[0,0.5]"},
          {"[1,1]", "[1,1.0]", "[\"a\",\"\\u0061\"]", "[[1],[1]]",
           R"([{"a":1,"b":2},{"b":2,"a":1}])", "[true,true]", "[0,-0]", "[0.50,0.5]"}},
         {R"({"type":"array","items":{"type":"boolean"},"uniqueItems":true})",
          {"[true,false]", "[false]"},
          {"[true,true]", "[true,false,true]"}},
         {R"({"type":"array","prefixItems":[{}],"unevaluatedItems":false})", {"[1]"}, {"[1,2]"}}});
}

TEST(JsonSchema, Combinations) {
  check(
      {{R"({"allOf":[{"type":"integer"},{"minimum":3},{"maximum":5}]})", {"3", "5"}, {"2", "6"}},
       {R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]})",
        {"1", "\"a\""},
        {"\"ab\"", "null"}},
       {R"({"oneOf":[{"type":"integer"},{"minimum":5}]})",
        {"1", "5.5", "\"a\"", "null"},
        {"5", "1.5"}},
       {R"({"oneOf":[{"required":["a"]},{"required":["b"]}],"type":"object"})",
        {R"({"a":1})", R"({"b":1,"c":2})"},
        {"{}", R"({"a":1,"b":2})"}},
       {R"({"oneOf":[{"multipleOf":2},{"multipleOf":3}],"type":"integer"})",
        {"2", "9"},
        {"6", "1"}},
       {R"({"not":{"type":"integer"}})", {"1.5", "\"a\"", "{}"}, {"1", "2.0"}},
       {R"({"not":{"required":["a"]},"type":"object"})", {"{}", R"({"b":1})"}, {R"({"a":1})"}},
       {R"({"type":"object","not":{"properties":{"a":{"type":"integer"}}}})",
        {R"({"a":"x"})"},
        {"{}", R"({"a":1})", R"({"b":"x"})"}},
       {R"({"type":"object","not":{"additionalProperties":{"type":"integer"}}})",
        {R"({"a":"x"})", R"({"b":1,"c":null,"d":2})"},
        {"{}", R"({"b":1})"}},
       {R"({"type":"string","not":{"pattern":"^a"}})", {"\"b\"", "\"\""}, {"\"ab\""}},
       {R"({"type":"array","not":{"items":{"type":"integer"}}})",
        {"[\"a\"]", "[1,null]"},
        {"[]", "[1]"}},
       {R"({"if":{"properties":{"t":{"const":1}},"required":["t"]},"then":{"required":["a"]},
            "else":{"required":["b"]},"type":"object"})",
        {R"({"t":1,"a":0})", R"({"a":0,"t":1})", R"({"b":0})", R"({"t":2,"b":0})"},
        {R"({"t":1})", R"({"t":2,"a":0})", R"({"a":0})"}},
       {R"({"anyOf":[{"properties":{"k":{"const":"a"},"v":{"type":"integer"}},"required":["k","v"]},
                     {"properties":{"k":{"const":"ab"},"v":{"type":"null"}},"required":["k","v"]}],
            "type":"object"})",
        {R"({"k":"a","v":1})", R"({"v":null,"k":"ab"})"},
        {R"({"k":"a","v":null})", R"({"v":1,"k":"ab"})", R"({"k":"abc","v":1})"}}});
}

TEST(JsonSchema, References) {
  check({{R"({"$defs":{"tree":{"type":"object","properties":{"v":{"type":"integer"},
            "kids":{"type":"array","items":{"$ref":"#/$defs/tree"}}},"required":["v"],
            "additionalProperties":false}},"$ref":"#/$defs/tree"})",
          {R"({"v":1})", R"({"kids":[{"v":2,"kids":[]},{"v":3}],"v":1})"},
          {"{}", R"({"v":1,"kids":[{}]})"}},
         {R"({"properties":{"a/b":{"type":"null"},"c%d":{"type":"integer"}},
            "allOf":[{"properties":{"x":{"$ref":"#/properties/a~1b"},
                                    "y":{"$ref":"#/properties/c%25d"}}}]})",
          {R"({"x":null,"y":1})"},
          {R"({"x":1})", R"({"y":null})"}},
         {R"({"$id":"http://h/root","$ref":"item","$defs":{"i":{"$id":"http://h/item",
            "type":"integer"}}})",
          {"1"},
          {"\"a\""}},
         {R"({"$ref":"#here","$defs":{"i":{"$anchor":"here","type":"integer"}}})", {"1"}, {"null"}},
         // Beside $ref the older drafts see nothing.
         {R"({"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"i":{}},
            "properties":{"a":{"$ref":"#/definitions/i","type":"null"}}})",
          {R"({"a":1})"},
          {"x"}},
         {R"({"$defs":{"i":{}},"properties":{"a":{"$ref":"#/$defs/i","type":"null"}}})",
          {R"({"a":null})"},
          {R"({"a":1})"}}});
}

TEST(JsonSchema, Whitespace) {
  const Json schema = Json::parse(R"({"type":"object","required":["a"]})").value();
  SchemaOptions options;
  const Matcher flexible = matcher_of(compile_json_schema(schema, options).value());
  EXPECT_TRUE(passes(flexible, "{\n  \"a\" : [ 1 , 2 ]\n}"));
  EXPECT_FALSE(passes(flexible, "{" + std::string(65, ' ') + "\"a\":1}"));
  EXPECT_FALSE(passes(flexible, "{\"a\":1} "));
  options.whitespace = SchemaOptions::Whitespace::kNone;
  const Matcher compact = matcher_of(compile_json_schema(schema, options).value());
  EXPECT_TRUE(passes(compact, "{\"a\":[1,2]}"));
  EXPECT_FALSE(passes(compact, "{\"a\": 1}"));
}

}  // namespace
}  // namespace pelton::grammar
