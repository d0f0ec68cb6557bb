#include "grammar/structural_tag.h"

#include <random>

#include <gtest/gtest.h>

#include "grammar/compile_budget.h"
#include "grammar/test_vocabulary.h"

namespace pelton::grammar {
namespace {

Result<std::shared_ptr<const Grammar>> tag_of(std::string_view text) {
  return compile_structural_tag(Json::parse(text).value(), {});
}

Matcher tag_matcher(std::string_view text) {
  return matcher_of(tag_of(text).value());
}

struct Case {
  const char* name;
  const char* tag;
  std::vector<std::string> good;
  std::vector<std::string> bad;
};

// Formats one by one; `@` stands before what is not the whole tag but its "format".
const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {"as vLLM's users send it",
       R"({"type":"structural_tag","triggers":["<f="],"structures":[
          {"begin":"<f=a>","schema":{"type":"object","properties":{"x":{"type":"integer"}},
           "required":["x"],"additionalProperties":false},"end":"</f>"},
          {"begin":"<f=b>","schema":{"enum":[1,12,true]},"end":"</f>"}]})",
       {"", "no call at all, < f=", "<f=a>{\"x\":1}</f>", "so: <f=b>12</f> and <f=b>1</f>.",
        "<f=a>{\"x\": -12}</f><f=b>true</f>", "é<f <<f=b>1</f>"},
       {"<f=", "<f=c>", "x<f=a>", "<f=a>{}</f>", "<f=b>2</f>", "<f=b>1</f",
        "<f=a>{\"x\":1}</f><f=", "<f=b>13</f>"}},
      {"a constant", R"(@{"type":"const_string","value":"abc"})", {"abc"}, {"", "ab", "abcd"}},
      {"an expression", R"(@{"type":"regex","pattern":"[ab]{2}"})", {"ab", "bb"}, {"a", "abc"}},
      {"JSON alone",
       R"(@{"type":"json_schema","json_schema":{"type":"number"}})",
       {"1", "-1.5", "12e1"},
       {"", "-", "1.", "1 "}},
      {"any text",
       R"(@{"type":"any_text","excludes":["foo"]})",
       {"", "fo", "fofo o"},
       {"foo", "a foo b", "\xE6\x97"}},
      {"a sequence with a number amid it",
       R"(@{"type":"sequence","elements":[{"type":"const_string","value":"n="},
          {"type":"json_schema","json_schema":{"type":"integer"}},{"type":"regex","pattern":"[0-9]?x"}]})",
       {"n=1x", "n=12x", "n=-120x", "n=0x", "n=05x"},
       {"n=x", "n=1", "n=1y", "n=1 x", "n=00x1"}},
      {"alternatives",
       R"(@{"type":"or","elements":[{"type":"const_string","value":"yes"},
          {"type":"json_schema","json_schema":{"type":"null"}}]})",
       {"yes", "null"},
       {"", "no", "yesnull"}},
      {"repeats",
       R"(@{"type":"sequence","elements":[
          {"type":"optional","content":{"type":"const_string","value":"a"}},
          {"type":"plus","content":{"type":"const_string","value":"b"}},
          {"type":"star","content":{"type":"const_string","value":"c"}},
          {"type":"repeat","min":1,"max":2,"content":{"type":"json_schema","json_schema":{"const":[]}}},
          {"type":"repeat","min":0,"max":-1,"content":{"type":"const_string","value":"d"}}]})",
       {"b[]", "abb[][]", "bcc[]ddd"},
       {"[]", "ab", "b[][][]", "aab[]"}},
      {"a tag with two ends",
       R"(@{"type":"tag","begin":"<r>","content":{"type":"json_schema","json_schema":
          {"type":"array","items":{"type":"integer"}}},"end":["</r>","</a>"]})",
       {"<r>[]</r>", "<r>[1,2]</a>"},
       {"<r></r>", "<r>[1</r>", "<r>[]</b>"}},
      {"free text up to the first end",
       R"(@{"type":"tag","begin":"","content":{"type":"any_text"},"end":"aba"})",
       {"aba", "xaba", "abxaba"},
       {"", "ab", "abaaba", "ababa"}},
      {"tags that may come and text between",
       R"(@{"type":"triggered_tags","triggers":["<","["],"tags":[
          {"begin":"<a>","content":{"type":"const_string","value":"1"},"end":""},
          {"begin":"[","content":{"type":"any_text"},"end":"]"}],"excludes":["foo"]})",
       {"", "text", "<a>1", "[x]", "a<a>1b[foo]c"},
       {"<", "<b", "[", "foo", "<a>2", "a]foo"}},
      {"at least one",
       R"(@{"type":"triggered_tags","at_least_one":true,"triggers":["<"],"tags":[
          {"begin":"<a>","content":{"type":"const_string","value":"1"},"end":"."}]})",
       {"<a>1.", "<a>1. and <a>1.x"},
       {"", "x<a>1.", "<a>1.<"}},
      {"the first only",
       R"(@{"type":"triggered_tags","stop_after_first":true,"triggers":["<"],"tags":[
          {"begin":"<a>","content":{"type":"const_string","value":"1"},"end":"."}]})",
       {"", "none", "x<a>1."},
       {"<a>1.x", "<a>1.<a>1."}},
      {"one and no other",
       R"(@{"type":"triggered_tags","stop_after_first":true,"at_least_one":true,"triggers":["<"],
          "tags":[{"begin":"<a>","content":{"type":"const_string","value":"1"},"end":"."}]})",
       {"<a>1."},
       {"", "x<a>1.", "<a>1.x"}},
      {"tags with a separator",
       R"t(@{"type":"tags_with_separator","separator":", ","tags":[
          {"begin":"(","content":{"type":"json_schema","json_schema":{"type":"integer"}},"end":")"}]})t",
       {"", "(1)", "(1), (12), (-1)"},
       {"(1),(2)", "(1), ", "()", "(1)(2)"}},
      {"tags within a tag end with it",
       R"(@{"type":"tag","begin":"{","end":"}","content":{"type":"triggered_tags","triggers":["<"],
          "tags":[{"begin":"<a","content":{"type":"const_string","value":"}"},"end":">"}]}})",
       {"{}", "{x}", "{x<a}>y}"},
       {"{", "{<}", "{}}", "{x}y"}},
      {"rules within it",
       R"t(@{"type":"sequence","elements":[{"type":"const_string","value":"="},
          {"type":"grammar","grammar":"root ::= \"(\" root \")\" | [xy]"},
          {"type":"json_schema","json_schema":{"type":"boolean"}},
          {"type":"grammar","grammar":"root ::= \"z\"+"}]})t",
       {"=xtruez", "=((y))falsezz"},
       {"=truez", "=(xtruez", "=x", "=xtrue"}},
      {"schemas that refer to themselves, side by side",
       R"(@{"type":"sequence","elements":[
          {"type":"json_schema","json_schema":{"type":"array","items":{"$ref":"#"}}},
          {"type":"json_schema","json_schema":{"type":"object","properties":{"a":{"$ref":"#"}},
           "patternProperties":{"^b":{"type":"integer"}},"additionalProperties":false}}]})",
       {"[]{}", "[[],[[]]]{\"a\":{\"b1\":1},\"bar\":2}"},
       {"[1]{}", "[]{\"a\":[]}", "[]{\"c\":1}"}},
  };
  return kCases;
}

std::string whole(std::string_view tag) {
  if (tag[0] != '@') return std::string(tag);
  return R"({"type":"structural_tag","format":)" + std::string(tag.substr(1)) + "}";
}

TEST(StructuralTag, SaysWhatItSays) {
  for (const Case& one : cases()) {
    const Matcher matcher = tag_matcher(whole(one.tag));
    for (const std::string& text : one.good) {
      EXPECT_TRUE(passes(matcher, text)) << one.name << ": " << text;
    }
    for (const std::string& text : one.bad) {
      EXPECT_FALSE(passes(matcher, text)) << one.name << ": " << text;
    }
  }
}

// What the caches say is what trying each token says; and no way leads into a dead end.
TEST(StructuralTag, MaskIsWhatEachTokenSays) {
  for (const Case& one : cases()) {
    const Matcher start = tag_matcher(whole(one.tag));
    std::vector<uint64_t> mask(start.grammar().trie().mask_words());
    for (uint64_t seed = 0; seed < 6; ++seed) {
      SCOPED_TRACE(one.name + std::string(", seed ") + std::to_string(seed));
      std::mt19937_64 random(seed);
      Matcher matcher = start;
      for (int step = 0; step < 30; ++step) {
        matcher.fill_mask(mask);
        ASSERT_FALSE(matcher.is_stuck());
        std::vector<TokenId> allowed;
        for (int token = 0; token < matcher.grammar().trie().vocab_size(); ++token) {
          const bool bit = (mask[static_cast<size_t>(token) / 64] >> (token % 64) & 1) != 0;
          ASSERT_EQ(bit, matcher.allows(token)) << matcher.grammar().trie().bytes(token);
          if (bit) allowed.push_back(token);
        }
        if (allowed.empty()) break;
        // Towards what is marked: free text would be drawn for ever.
        TokenId token = allowed[random() % allowed.size()];
        for (const char mark : std::string("<[({f=a>")) {
          const bool fits = (mask[static_cast<size_t>(mark) / 64] >> (mark % 64) & 1) != 0;
          if (fits && random() % 4 == 0) token = mark;
        }
        ASSERT_TRUE(matcher.accept(token));
      }
    }
  }
}

struct Refused {
  const char* tag;
  const char* pointer;
  ErrorCode code = ErrorCode::kInvalidArgument;
};

TEST(StructuralTag, RefusesWithAPlace) {
  constexpr auto kUnsupported = ErrorCode::kUnsupported;
  const Refused all[] = {
      {"[]", ""},
      {"{}", ""},
      {R"({"type":"json","format":{}})", "/type"},
      {R"({"format":{},"triggers":["a"]})", ""},
      {R"({"structures":[],"triggers":["a"]})", "/structures"},
      {R"({"structures":[{"begin":"a","schema":{},"end":""}]})", ""},
      {R"({"structures":[{"begin":"a","schema":{},"end":""}],"triggers":[]})", "/triggers"},
      {R"({"structures":[{"begin":"a","schema":{},"end":""}],"triggers":[""]})", "/triggers/0"},
      {R"({"structures":[{"begin":"a","schema":{},"end":""}],"triggers":[7]})", "/triggers/0"},
      {R"({"structures":[{"begin":"a","schema":{},"end":""}],"triggers":["a","b"]})",
       "/triggers/1"},
      {R"({"structures":[{"begin":"b","schema":{},"end":""},{"begin":"a","schema":{},"end":""}],
         "triggers":["a"]})",
       "/structures/0/begin"},
      {R"({"structures":[{"begin":"ab","schema":{},"end":""}],"triggers":["a","ab"]})",
       "/triggers/1"},
      {R"({"structures":[{"begin":"a","end":""}],"triggers":["a"]})", "/structures/0"},
      {R"({"structures":[{"begin":"a","schema":{"type":"foo"},"end":""}],"triggers":["a"]})",
       "/structures/0/schema/type"},
      {R"({"structures":[{"begin":"a","schema":{},"end":"","strict":1}],"triggers":["a"]})",
       "/structures/0/strict", kUnsupported},
      {R"({"format":7})", "/format"},
      {R"({"format":{"type":"token","token":1}})", "/format", kUnsupported},
      {R"({"format":{"type":"dispatch","rules":[]}})", "/format", kUnsupported},
      {R"({"format":{"type":"tag","begin":{"type":"token","token":"x"},"content":{},"end":""}})",
       "/format/begin", kUnsupported},
      {R"({"format":{"type":"tag","begin":"","content":{"type":"regex","pattern":"("},"end":""}})",
       "/format/content/pattern"},
      {R"({"format":{"type":"json_schema","json_schema":{},"style":"qwen_xml"}})", "/format/style",
       kUnsupported},
      {R"({"format":{"type":"json_schema","json_schema":{"not":{}}}})", "/format/json_schema"},
      {R"({"format":{"type":"json_schema","json_schema":{"properties":{"a":{"$dynamicRef":"#"}}}}})",
       "/format/json_schema/properties/a/$dynamicRef", kUnsupported},
      {R"({"format":{"type":"grammar","grammar":"root ::= nothing"}})", "/format/grammar"},
      {R"({"format":{"type":"sequence","elements":[]}})", "/format/elements"},
      {R"({"format":{"type":"sequence","elements":[{"type":"const_string"}]}})",
       "/format/elements/0"},
      {R"({"format":{"type":"repeat","min":2,"max":1,"content":{"type":"any_text"}}})", "/format"},
      {R"({"format":{"type":"any_text","excludes":"x"}})", "/format/excludes"},
      {R"({"format":{"type":"any_text","include":[]}})", "/format/include", kUnsupported},
  };
  for (const Refused& one : all) {
    const auto compiled = tag_of(one.tag);
    ASSERT_FALSE(compiled.ok()) << one.tag;
    EXPECT_EQ(compiled.error().field, one.pointer) << one.tag << compiled.error().message;
    EXPECT_EQ(compiled.error().code, one.code) << one.tag << compiled.error().message;
  }
}

TEST(StructuralTag, BombsEndInTime) {
  std::string deep = R"({"type":"any_text"})";
  for (int i = 0; i < 60; ++i) deep = R"({"type":"optional","content":)" + deep + "}";
  std::string wide, many, nested = R"({"type":"const_string","value":"a"})";
  for (int i = 0; i < 64; ++i) {
    const std::string mark =
        "\"" + std::string(60, static_cast<char>('a' + i % 3)) + std::to_string(i) + "<" + "\"";
    wide += (i > 0 ? "," : "") + mark;
    many += (i > 0 ? "," : "") + (R"({"begin":)" + mark) +
            R"(,"content":{"type":"any_text"},"end":"x"})";
  }
  for (int i = 0; i < 8; ++i) {
    nested = R"({"type":"repeat","min":1000,"max":1000,"content":)" + nested + "}";
  }
  const std::string tags[] = {
      deep, nested,
      R"({"type":"triggered_tags","triggers":[)" + wide + R"(],"tags":[)" + many + "]}"};
  for (const std::string& tag : tags) {
    const int64_t begin = CompileBudget::now_us();
    const auto compiled = tag_of(R"({"format":)" + tag + "}");
    EXPECT_LT(CompileBudget::now_us() - begin, 5'000'000) << tag.substr(0, 80);
    if (!compiled.ok()) {
      EXPECT_EQ(compiled.error().code, ErrorCode::kDoesNotFit) << compiled.error().message;
    }
  }
}

}  // namespace
}  // namespace pelton::grammar
