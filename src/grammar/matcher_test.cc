#include "grammar/matcher.h"

#include <atomic>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "grammar/ebnf.h"
#include "grammar/regex.h"
#include "grammar/test_vocabulary.h"

namespace pelton::grammar {
namespace {

const char* const kSchemas[] = {
    "true",
    R"({"type":"object"})",
    R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},
        "required":["name"],"additionalProperties":false})",
    R"({"type":"object","properties":{"na":{"type":"null"},"name":{"enum":["a","ab","abc"]}},
        "additionalProperties":{"type":"boolean"}})",
    R"({"type":"string","minLength":2,"maxLength":5})",
    R"({"type":"string","pattern":"^a+b*$"})",
    R"({"type":"string","pattern":"^[^a]{2,8}$","maxLength":6})",
    R"({"enum":["foo","bar",1,1.5,null,true,{"a":[1,"x"]},[]]})",
    R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
    R"({"type":"array","items":{"enum":["a","ab","b"]},"uniqueItems":true})",
    R"({"type":"array","uniqueItems":true})",
    R"({"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}],"items":false})",
    R"({"type":"array","contains":{"const":"a"},"maxContains":1})",
    R"({"anyOf":[{"type":"object","properties":{"type":{"const":"a"},"id":{"type":"integer"}},
        "required":["type","id"]},{"type":"object","properties":{"type":{"const":"ab"},
        "id":{"type":"string"}},"required":["type","id"]}]})",
    R"({"type":"object","patternProperties":{"^a":{"type":"integer"}},
        "additionalProperties":{"type":"string"}})",
    R"({"type":"object","propertyNames":{"pattern":"^[ab]+$"},"maxProperties":2})",
    R"({"$defs":{"n":{"type":"object","properties":{"a":{"$ref":"#/$defs/n"},"id":{}},
        "additionalProperties":false}},"$ref":"#/$defs/n"})",
    R"({"not":{"type":["object","string"]}})",
    R"({"type":"object","dependentRequired":{"a":["b"],"b":["id"]},"maxProperties":3})",
};

// A walk through a grammar, one drawn token after the other; `at` is called in every place.
template <typename At>
void walk(const Matcher& start, uint64_t seed, int tokens, At at) {
  std::mt19937_64 random(seed);
  Matcher matcher = start;
  std::vector<uint64_t> mask(matcher.grammar().trie().mask_words());
  for (int i = 0; i < tokens; ++i) {
    matcher.fill_mask(mask);
    at(matcher, mask);
    std::vector<TokenId> allowed;
    for (int token = 0; token < matcher.grammar().trie().vocab_size(); ++token) {
      if ((mask[static_cast<size_t>(token) / 64] >> (token % 64) & 1) != 0)
        allowed.push_back(token);
    }
    if (allowed.empty()) return;
    // Long tokens are rare among all, and they are the ones that go wrong.
    TokenId token = allowed[random() % allowed.size()];
    const TokenId other = allowed[random() % allowed.size()];
    if (matcher.grammar().trie().bytes(other).size() >
        matcher.grammar().trie().bytes(token).size()) {
      token = other;
    }
    ASSERT_TRUE(matcher.accept(token));
  }
}

// What the caches, slices and subtrees say is what trying each token says.
TEST(Matcher, MaskIsWhatEachTokenSays) {
  for (const char* const schema : kSchemas) {
    const Matcher start = matcher_of(compiled(schema).value());
    for (uint64_t seed = 0; seed < 6; ++seed) {
      SCOPED_TRACE(std::string(schema) + " seed " + std::to_string(seed));
      std::string text;
      walk(start, seed, 40, [&](const Matcher& matcher, const std::vector<uint64_t>& mask) {
        for (int token = 0; token < matcher.grammar().trie().vocab_size(); ++token) {
          const bool bit = (mask[static_cast<size_t>(token) / 64] >> (token % 64) & 1) != 0;
          ASSERT_EQ(bit, matcher.allows(token))
              << "token " << matcher.grammar().trie().bytes(token);
        }
      });
      if (HasFatalFailure()) return;
    }
  }
}

// Automata by themselves and amid rules, large enough to have states that no token distinguishes.
TEST(Matcher, MaskOfAutomataIsWhatEachTokenSays) {
  const char* const kRegexes[] = {"([a-z]{1,8} ){200}",
                                  "[a-z]+( [a-z]+)*\\.?",
                                  "[^a]*foo",
                                  "(na|name|me){0,30}(age)?",
                                  "[\\s\\S]*",
                                  "\\w{2,5}(\\.com|@)?",
                                  "(é|日本|[^\\x00-\\x7F])+x?",
                                  "(ab|cd){0,400}b"};
  std::vector<Matcher> starts;
  for (const char* const regex : kRegexes) {
    Result<ByteDfa> dfa = compile_regex(regex, {.match = RegexOptions::Match::kWhole});
    ASSERT_TRUE(dfa.ok()) << regex << dfa.error().message;
    starts.push_back(matcher_of(Grammar::from_dfa(std::move(*dfa)).value()));
  }
  for (const char* const rules :
       {"root ::= (\"(\" root \")\" | [a-z]+ [0-9]*)+",
        "root ::= [a-z ]{1,40} (\"foo\" | \"{\" root \"}\")?",
        "start: \"[\" (WORD \",\"?)* \"]\" | \"{\" start \"}\"\nWORD: /[a-z\"]+(é|日)*x?/"}) {
    starts.push_back(matcher_of(compile_ebnf(rules).value()));
  }
  for (size_t i = 0; i < starts.size(); ++i) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE(std::to_string(i) + " seed " + std::to_string(seed));
      walk(starts[i], seed, 60, [&](const Matcher& matcher, const std::vector<uint64_t>& mask) {
        for (int token = 0; token < matcher.grammar().trie().vocab_size(); ++token) {
          const bool bit = (mask[static_cast<size_t>(token) / 64] >> (token % 64) & 1) != 0;
          ASSERT_EQ(bit, matcher.allows(token))
              << "token " << matcher.grammar().trie().bytes(token);
        }
      });
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Matcher, StatesThatNoTokenTellsApartAreAlike) {
  const ByteDfa words =
      compile_regex("([a-z]{1,8} ){200}", {.match = RegexOptions::Match::kWhole}).value();
  uint64_t work_left = 6'000'000;
  const std::vector<uint32_t> classes = alike_states(words.table(), 20, work_left, nullptr);
  ASSERT_EQ(classes.size(), words.states());
  const std::set<uint32_t> different(classes.begin(), classes.end());
  EXPECT_LT(different.size(), 150u);  // of 1 801: only the last words are distinguished
  EXPECT_GT(different.size(), 20u);
  // What is alike must agree on short texts.
  std::mt19937_64 random(1);
  std::map<uint32_t, DfaState> first;
  for (DfaState state = 0; state < words.states(); ++state) {
    const DfaState other = first.emplace(classes[state], state).first->second;
    for (int text = 0; text < 20; ++text) {
      std::string bytes;
      for (uint64_t i = random() % 20; i > 0; --i) bytes += "abc  "[random() % 5];
      const DfaState a = words.walk(state, bytes);
      const DfaState b = words.walk(other, bytes);
      ASSERT_EQ(a == kDeadState, b == kDeadState);
      ASSERT_EQ(words.accepts(a), words.accepts(b));
    }
  }
  const DfaTable small = compile_regex("[a-z]{1,8}", {}).value().table();
  EXPECT_TRUE(alike_states(small, 20, work_left, nullptr).empty());
  // What many automata of one grammar may take together.
  EXPECT_LT(work_left, 6'000'000u);
  work_left = 100'000;
  EXPECT_TRUE(alike_states(words.table(), 20, work_left, nullptr).empty());
  EXPECT_EQ(work_left, 100'000u);
  work_left = 6'000'000;
  const CompileDeadline passed({.cpu_us_max = -1});
  EXPECT_TRUE(alike_states(words.table(), 20, work_left, &passed).empty());
}

// D2: the first mask, the classes of states and the merged vocabulary are a part of compiling.
TEST(Matcher, D2_WhatAGrammarNeedsOfAVocabularyEndsAtTheDeadline) {
  const auto ambiguous = compile_ebnf("root ::= w \"ZZQ!\"\nw ::= [a-z ] | w w | w w w").value();
  EXPECT_TRUE(TokenGrammar::make(ambiguous, test_trie()).ok());
  const CompileDeadline passed({.cpu_us_max = -1});
  EXPECT_EQ(TokenGrammar::make(ambiguous, test_trie(), &passed).error().code,
            ErrorCode::kDoesNotFit);
  // It is asked within the work, not only before it.
  WorkBudget budget({.deadline = &passed});
  budget.spend(1 << 17);
  EXPECT_TRUE(budget.exhausted());
  EXPECT_FALSE(budget.exceeds_total());
  std::atomic<bool> stopped = true;
  const CompileDeadline unwanted({.cpu_us_max = int64_t{3600} * 1'000'000, .stopped = &stopped});
  EXPECT_EQ(TokenGrammar::make(ambiguous, test_trie(), &unwanted).error().code,
            ErrorCode::kDoesNotFit);
}

// Who asks first makes the smaller vocabulary; whether a limit is reached does not depend on that.
TEST(Matcher, D2_AMergedVocabularyCostsEverybodyAsMuch) {
  const auto grammar =
      TokenGrammar::of_words(compile_ebnf("root ::= [a-z]+ root?").value(), test_trie()).value();
  WorkBudget none({.done_max = 0});
  EXPECT_EQ(&grammar->tokens(none), &grammar->trie().all());
  EXPECT_TRUE(none.exhausted());
  WorkBudget first, second;
  const ByteTrie& made = grammar->tokens(first);
  EXPECT_GT(first.done(), 0);
  EXPECT_NE(&made, &grammar->trie().all());
  EXPECT_EQ(&grammar->tokens(second), &made);
  EXPECT_EQ(second.done(), 0);
  WorkBudget small({.total_max = first.done() - 1});
  (void)grammar->tokens(small);
  EXPECT_TRUE(small.exceeds_total());
}

// A mask never leads into a place without a way on.
TEST(Matcher, NoDeadEnds) {
  for (const char* const schema : kSchemas) {
    const Matcher start = matcher_of(compiled(schema).value());
    for (uint64_t seed = 100; seed < 130; ++seed) {
      SCOPED_TRACE(std::string(schema) + " seed " + std::to_string(seed));
      walk(start, seed, 60, [&](const Matcher& matcher, const std::vector<uint64_t>&) {
        EXPECT_FALSE(matcher.is_stuck());
      });
      if (HasFailure()) return;
    }
  }
}

// A number and a string of the same characters once shared a mask.
TEST(Matcher, NumbersAndStringsOfOneLanguage) {
  const Matcher start =
      matcher_of(compiled(R"({"$schema":"http://json-schema.org/draft-04/schema#","type":"array",
                   "items":[{"type":"integer","enum":[1]},{"enum":["1"]}]})")
                     .value());
  std::vector<uint64_t> mask(start.grammar().trie().mask_words());
  Matcher matcher = start;
  for (const char byte : std::string(R"([1,"1"])")) {
    matcher.fill_mask(mask);
    const size_t token = static_cast<uint8_t>(byte);
    EXPECT_NE(mask[token / 64] >> (token % 64) & 1, 0u) << byte;
    ASSERT_TRUE(matcher.accept_bytes(std::string(1, byte)));
  }
}

TEST(Matcher, ForksAreIndependent) {
  const Matcher start =
      matcher_of(compiled(R"({"type":"object","properties":{"a":{"type":"integer"},"b":{}},
                   "required":["a"],"additionalProperties":false})")
                     .value());
  Matcher first = start;
  ASSERT_TRUE(first.accept_bytes(R"({"a":1)"));
  Matcher second = first;
  ASSERT_TRUE(first.accept_bytes("}"));
  EXPECT_TRUE(first.can_end());
  EXPECT_TRUE(first.must_end());
  EXPECT_FALSE(second.can_end());
  EXPECT_TRUE(second.accept_bytes(R"(,"b":[]})"));
  EXPECT_TRUE(second.can_end());
  Matcher third = start;
  EXPECT_TRUE(passes(third, R"({"b":null,"a":0})"));
}

TEST(Matcher, WhatIsNotAllowedChangesNothing) {
  Matcher matcher = matcher_of(compiled(R"({"const":"abc"})").value());
  ASSERT_TRUE(matcher.accept_bytes("\"ab"));
  EXPECT_FALSE(matcher.accept_bytes("x"));
  EXPECT_FALSE(matcher.accept_bytes("c\"x"));
  EXPECT_TRUE(matcher.accept_bytes("c\""));
  EXPECT_TRUE(matcher.must_end());
}

TEST(Matcher, ForcedBytes) {
  SchemaOptions options;
  options.whitespace = SchemaOptions::Whitespace::kNone;
  const Json schema = Json::parse(R"({"type":"object","properties":{"name":{"type":"string"}},
                      "required":["name"],"additionalProperties":false})")
                          .value();
  const Matcher start = matcher_of(compile_json_schema(schema, options).value());
  Matcher matcher = start;
  const auto forced = [&](size_t bytes_max) { return matcher.forced(bytes_max).bytes; };
  EXPECT_EQ(forced(100), "{\"name\":\"");
  EXPECT_EQ(forced(2), "{\"");
  ASSERT_TRUE(matcher.accept_bytes("{\"name\":\"x"));
  EXPECT_EQ(forced(100), "");
  ASSERT_TRUE(matcher.accept_bytes("\""));
  EXPECT_EQ(forced(100), "}");
  EXPECT_TRUE(matcher.forced(100).ends);
  EXPECT_FALSE(start.forced(100).ends);
  ASSERT_TRUE(matcher.accept_bytes("}"));
  EXPECT_EQ(forced(100), "");
  EXPECT_TRUE(matcher.forced(100).ends);
}

TEST(Matcher, ControlTokensAreNeverAllowed) {
  // Ids without a text stand for them in this vocabulary.
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.push_back(std::string(1, static_cast<char>(byte)));
  texts.push_back("");
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const auto trie = std::make_shared<const TokenTrie>(views);
  const Matcher matcher(TokenGrammar::make(compiled("true").value(), trie).value());
  std::vector<uint64_t> mask(trie->mask_words());
  matcher.fill_mask(mask);
  EXPECT_EQ(mask[256 / 64] >> (256 % 64) & 1, 0u);
  EXPECT_FALSE(matcher.allows(256));
  EXPECT_FALSE(matcher.allows(-1));
  EXPECT_FALSE(matcher.allows(100000));
}

// JS-28: what no token can spell must not be asked for.
TEST(HostileGrammar, JS28_AVocabularyWithoutAByteIsRefused) {
  std::vector<std::string> texts;
  for (int byte = 1; byte < 256; ++byte) texts.push_back(std::string(1, static_cast<char>(byte)));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const auto trie = std::make_shared<const TokenTrie>(views);
  EXPECT_EQ(TokenGrammar::make(compiled("true").value(), trie).error().code,
            ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace pelton::grammar
