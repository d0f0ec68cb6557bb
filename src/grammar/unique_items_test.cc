// D3: arrays of unique items. Whatever is drawn from the masks ends in a value whose items differ
// as JSON Schema has it (numbers by their value, objects without order); what no array satisfies is
// refused before anything is drawn.
#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>

#include "base/json.h"
#include "grammar/json_schema.h"
#include "grammar/machine.h"
#include "grammar/test_values.h"
#include "grammar/test_vocabulary.h"

namespace pelton::grammar {
namespace {

Result<std::shared_ptr<const Grammar>> compiled_text(const std::string& schema) {
  return compile_json_schema(Json::parse(schema).value(), {});
}

// The text of tokens drawn from the masks until it must end; empty: a dead end, or too long.
std::string drawn(const Matcher& start, std::mt19937_64& random, std::string& so_far) {
  Matcher matcher = start;
  std::vector<uint64_t> mask(test_trie()->mask_words());
  for (int i = 0; i < 1500; ++i) {
    if (matcher.can_end() && (i > 400 || matcher.must_end() || random() % 8 == 0)) return so_far;
    matcher.fill_mask(mask);
    std::vector<TokenId> allowed, ending;
    for (TokenId token = 0; token < test_trie()->vocab_size(); ++token) {
      if ((mask[static_cast<size_t>(token) / 64] >> (token % 64) & 1) == 0) continue;
      const std::string_view bytes = test_trie()->bytes(token);
      // Whitespace says nothing, and texts should end.
      if (is_json_space(static_cast<uint8_t>(bytes[0]))) continue;
      allowed.push_back(token);
      if (i > 60 && bytes.find_first_of("\"]}") == 0) ending.push_back(token);
    }
    if (allowed.empty()) return {};
    const std::vector<TokenId>& from = ending.empty() ? allowed : ending;
    const TokenId token = from[random() % from.size()];
    so_far += test_trie()->bytes(token);
    if (!matcher.accept(token)) return {};
  }
  return {};
}

void expect_unique(const Json& array, size_t items_min) {
  EXPECT_TRUE(all_differ(array.as_array())) << array.dump();
  EXPECT_GE(array.as_array().size(), items_min) << array.dump();
}

struct Case {
  std::string items;
  size_t items_min;
};

void expect_ends(const Case& one, uint64_t seeds) {
  const std::string schema = R"({"type":"array","uniqueItems":true,"minItems":)" +
                             std::to_string(one.items_min) + R"(,"items":)" + one.items + "}";
  SCOPED_TRACE(schema);
  const auto grammar = compiled_text(schema);
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  const Matcher start = matcher_of(*grammar);
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    std::mt19937_64 random(seed);
    std::string so_far;
    const std::string text = drawn(start, random, so_far);
    ASSERT_FALSE(text.empty()) << "seed " << seed << ": " << so_far;
    const auto value = Json::parse(text);
    ASSERT_TRUE(value.ok()) << text;
    expect_unique(*value, one.items_min);
  }
}

TEST(UniqueItems, D3_ValuesOfEveryKindEnd) {
  const Case cases[] = {
      {R"({"enum":[[1],2,3]})", 3},
      {R"({"enum":[{"a":1},{"a":2},{"b":1}]})", 3},
      {R"({"type":"object","properties":{"a":{"enum":[1,2]},"b":{"enum":["x","y"]}},)"
       R"("required":["a","b"],"additionalProperties":false})",
       4},
      {R"({"type":"object","properties":{"a":{"type":"boolean"}},"additionalProperties":false})",
       3},
      {R"({"type":"string","maxLength":1})", 5},
      {R"({"type":"string","maxLength":2,"pattern":"^[ab]*$"})", 7},
      {R"({"type":["string","null"],"maxLength":0})", 2},
      {R"({"type":"array","items":{"enum":[1,2]},"maxItems":2})", 7},
      {R"({"type":"array","items":{"type":"boolean"},"uniqueItems":true})", 5},
      {R"({"type":"object","properties":{"n":{"type":"string"},"r":{"enum":[1,2]}},)"
       R"("required":["n","r"],"additionalProperties":false})",
       4},
      {R"({"anyOf":[{"enum":[[],{},null]},{"type":"boolean"}]})", 5},
      {R"({"enum":[1234567890123456789,1234567890123456788,1,1e-10]})", 4},
      {R"({"enum":[1e20,2e20,1e-20,1e25]})", 4},
      {R"({"type":"integer","minimum":10000000000000000,"maximum":10000000000000003})", 4},
      {R"({"type":"number","exclusiveMinimum":0,"maximum":0.0000001})", 4},
      {R"({"type":"integer","minimum":100000000000000000000})", 3},
      {R"({"enum":["\n","\"","\\","\u0000"]})", 4},
  };
  for (const Case& one : cases) expect_ends(one, 12);
}

TEST(UniqueItems, D3_WhatNoArraySatisfiesIsRefused) {
  const Case cases[] = {
      {R"({"enum":[[1],[1.0],2]})", 3},
      {R"({"enum":[{"a":1,"b":2},{"b":2,"a":1}]})", 2},
      {R"({"type":"object","properties":{"a":{"enum":[1,2]}},"required":["a"],)"
       R"("additionalProperties":false})",
       3},
      {R"({"type":"object","properties":{"a":{"type":"boolean"}},"additionalProperties":false})",
       4},
      {R"({"type":"array","items":{"enum":[1,2]},"maxItems":2})", 8},
      {R"({"type":["string","null"],"maxLength":0})", 3},
      {R"({"type":"array","items":{"type":"boolean"},"uniqueItems":true})", 6},
      {R"({"type":"array","maxItems":0})", 2},
  };
  for (const Case& one : cases) {
    const std::string schema = R"({"type":"array","uniqueItems":true,"minItems":)" +
                               std::to_string(one.items_min) + R"(,"items":)" + one.items + "}";
    const auto grammar = compiled_text(schema);
    ASSERT_FALSE(grammar.ok()) << schema;
    EXPECT_EQ(grammar.error().code, ErrorCode::kInvalidArgument) << schema;
  }
  // Deep within, what cannot be is left out.
  const auto optional = compiled_text(
      R"({"type":"object","properties":{"a":{"type":"array","uniqueItems":true,"minItems":2,)"
      R"("items":{"enum":[[1],[1.0]]}},"b":{"type":"null"}},"additionalProperties":false})");
  ASSERT_TRUE(optional.ok());
  EXPECT_FALSE(matcher_of(*optional).accept_bytes(R"({"a)"));
  EXPECT_TRUE(matcher_of(*optional).accept_bytes(R"({"b":null})"));
}

// What a search for a new item goes over is bounded in depth, too: on a small stack it ends.
TEST(UniqueItems, D3_ASearchFitsASmallStack) {
  const auto follow = [](void* result) -> void* {
    for (const char* schema :
         {R"({"type":"array","uniqueItems":true,"items":{}})",
          R"({"type":"array","uniqueItems":true,"items":{"type":"string","minLength":50000}})",
          R"({"type":"array","uniqueItems":true,"items":{"type":"array","items":{}}})"}) {
      const auto grammar = compiled_text(schema);
      if (!grammar.ok()) continue;
      std::mt19937_64 random(7);
      for (int i = 0; i < 3; ++i) {
        std::string text;
        drawn(matcher_of(*grammar), random, text);
      }
      ++*static_cast<int*>(result);
    }
    return nullptr;
  };
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, size_t{2} << 20);
  int followed = 0;
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &small, follow, &followed), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&small);
  EXPECT_GE(followed, 2);
}

TEST(UniqueItems, D3_EqualValuesAreOne) {
  const Matcher start = matcher_of(compiled_text(R"({"type":"array","uniqueItems":true})").value());
  for (const char* const text : {R"([{"a":1,"b":[2]},{"b":[2.0],"a":1}])", "[[1],[1.0]]",
                                 R"(["a","\u0061"])", "[true,true]"}) {
    EXPECT_FALSE(Matcher(start).accept_bytes(text)) << text;
  }
  for (const char* const text : {R"([{"a":1,"b":2},{"a":2,"b":1}])", "[[1,2],[2,1]]",
                                 R"(["1",1,[1]])", "[false,0,null]", R"(["",null])"}) {
    EXPECT_TRUE(Matcher(start).accept_bytes(text)) << text;
  }
}

// Keys of which there are few are counted as well.
TEST(UniqueItems, D3_ObjectsWithFewKeysEnd) {
  for (const char* const schema : {
           R"({"type":"object","propertyNames":{"enum":["a"]},"minProperties":2})",
           R"({"type":"object","patternProperties":{"^[ab]$":{}},"additionalProperties":false,)"
           R"("minProperties":3})",
           R"({"type":"object","propertyNames":{"maxLength":0},"minProperties":2})",
       }) {
    const auto grammar = compiled_text(schema);
    ASSERT_FALSE(grammar.ok()) << schema;
    EXPECT_EQ(grammar.error().code, ErrorCode::kInvalidArgument) << schema;
  }
  const Matcher start = matcher_of(
      compiled_text(R"({"type":"object","propertyNames":{"enum":["a","b"]},"minProperties":2,)"
                    R"("additionalProperties":{"type":"integer"}})")
          .value());
  EXPECT_TRUE(passes(start, R"({"b":1,"a":2})"));
  EXPECT_FALSE(passes(start, R"({"a":2})"));
  EXPECT_FALSE(passes(start, R"({"a":1,"a":2})"));
  EXPECT_FALSE(passes(start, R"({"a":1,"c":2})"));
  EXPECT_FALSE(Matcher(start).accept_bytes(R"({"a":1,"b":2,)"));
}

std::string random_items(std::mt19937_64& random, int depth) {
  const auto roll = [&](uint64_t below) { return random() % below; };
  const auto inner = [&] { return random_items(random, depth - 1); };
  switch (roll(depth > 0 ? 9 : 6)) {
    case 0:
      return R"({"type":"boolean"})";
    case 1:
      return R"({"type":"string","maxLength":)" + std::to_string(roll(3)) + "}";
    case 2:
      return R"({"type":"integer","minimum":0,"maximum":)" + std::to_string(roll(5)) + "}";
    case 3:
      return R"({"enum":[1,"a",null,[1],{"a":1},2.5]})";
    case 4:
      return R"({"type":"string","pattern":"^[ab]{0,)" + std::to_string(1 + roll(2)) + R"(}$"})";
    case 5:
      return R"({"type":"number"})";
    case 6:
      return R"({"type":"array","items":)" + inner() + R"(,"maxItems":)" + std::to_string(roll(3)) +
             (roll(2) == 0 ? R"(,"uniqueItems":true})" : "}");
    case 7:
      return R"({"anyOf":[)" + inner() + "," + inner() + "]}";
    default:
      return R"({"type":"object","properties":{"a":)" + inner() + R"(,"b":)" + inner() +
             (roll(2) == 0 ? R"(},"required":["a"],"additionalProperties":false})"
                           : R"(},"required":["a","b"],"additionalProperties":false})");
  }
}

TEST(UniqueItems, D3_RandomSchemasNeverEndInADeadEnd) {
  const char* const given = std::getenv("PELTON_SEED");
  const char* const more = std::getenv("PELTON_SEEDS");
  const uint64_t first =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}() % 1'000'000;
  const uint64_t count = given != nullptr  ? 1
                         : more != nullptr ? std::strtoull(more, nullptr, 10)
                                           : 60;
  int refused = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    std::mt19937_64 random(seed);
    const Case one{random_items(random, 2), 1 + random() % 6};
    SCOPED_TRACE("PELTON_SEED=" + std::to_string(seed));
    if (!compiled_text(R"({"type":"array","uniqueItems":true,"minItems":)" +
                       std::to_string(one.items_min) + R"(,"items":)" + one.items + "}")
             .ok()) {
      ++refused;
      continue;
    }
    expect_ends(one, 3);
    if (HasFatalFailure()) return;
  }
  EXPECT_LT(refused, static_cast<int>(count) / 2 + 2);
}

}  // namespace
}  // namespace pelton::grammar
