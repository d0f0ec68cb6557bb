// Tokens that must come, by a vocabulary without a tokenizer: the longest token each time.
#include "grammar/grammar_state.h"

#include <gtest/gtest.h>

#include "grammar/ebnf.h"
#include "grammar/test_vocabulary.h"

namespace pelton::grammar {
namespace {

constexpr TokenId kMark = 1000;
constexpr TokenId kEnd = 1001;

// A header of these words, then kMark, then a text of these rules, then kEnd.
GrammarState guide_of(const char* header, const char* body) {
  using Segment = GrammarFsm::Segment;
  GrammarFsm::Parts parts{.trie = test_trie(), .vocab_size = kEnd + 1};
  const auto grammar = [](const char* rules) {
    return TokenGrammar::make(compile_ebnf(rules).value(), test_trie()).value();
  };
  parts.segments.push_back({Segment::Text::kGrammar, grammar(header), {{kMark, {1}}}});
  parts.segments.push_back({Segment::Text::kGrammar, grammar(body), {{kEnd, {}}}});
  parts.starts = {0};
  return GrammarState(std::make_shared<const GrammarFsm>(std::move(parts)));
}

std::string spelled(const std::vector<TokenId>& tokens) {
  std::string text;
  for (const TokenId token : tokens) {
    if (token == kMark) text += "<mark>";
    if (token == kEnd) text += "<end>";
    text += "|" + std::string(test_trie()->bytes(token));
  }
  return text;
}

TEST(GrammarState, ForcedTokensRunOverSegments) {
  // "name" is whole, as only kMark may follow; of the text's the last may become longer.
  EXPECT_EQ(spelled(guide_of("root ::= \"name\"", "root ::= \"fooabc\" [a-z]").forced(20)),
            "|name<mark>||foo");
  EXPECT_EQ(spelled(guide_of("root ::= \"name\"", "root ::= \"fooabc\"").forced(20)),
            "|name<mark>||foo|abc<end>|");
  EXPECT_EQ(spelled(guide_of("root ::= \"name\"", "root ::= \"fooabc\"").forced(3)),
            "|name<mark>||foo");
  EXPECT_EQ(guide_of("root ::= \"name\" | \"na\"", "root ::= \"a\"").forced(20).size(), 0u);
  EXPECT_EQ(guide_of("root ::= [ab]", "root ::= \"a\"").forced(20).size(), 0u);
}

TEST(GrammarState, ForcedTokensAreWhatMustCome) {
  for (const char* body :
       {"root ::= \"é日本\" \"x\"? \"bar\"", "root ::= (\"a\" | \"bfoofoo\")+ \"}\"",
        "root ::= \"{\" (\"}\" | \"\\\"a\\\":12\" [,}])"}) {
    GrammarState guide = guide_of("root ::= \"me\"", body);
    std::vector<uint64_t> room;
    for (int step = 0; step < 40 && !guide.over(); ++step) {
      GrammarState ahead = guide;
      for (const TokenId token : guide.forced(16)) {
        ASSERT_TRUE(may_be(ahead.mask(room), token)) << body;
        // Whatever else may come says the same bytes, or their beginning.
        const std::string_view bytes = test_trie()->bytes(token);
        const std::vector<uint64_t> mask(ahead.mask(room).begin(), ahead.mask(room).end());
        for (TokenId other = 0; other < test_trie()->vocab_size(); ++other) {
          if (!may_be(mask, other)) continue;
          const std::string_view more = test_trie()->bytes(other);
          EXPECT_TRUE(bytes.starts_with(more) || more.starts_with(bytes)) << bytes << " " << more;
        }
        ASSERT_TRUE(ahead.accept(token));
      }
      guide = ahead;
      if (guide.over()) break;
      const std::span<const uint64_t> mask = guide.mask(room);
      TokenId next = 0;
      while (!may_be(mask, next)) ++next;
      ASSERT_TRUE(guide.accept(next));
    }
  }
}

TEST(GrammarState, NothingIsForcedWhereItIsOver) {
  GrammarState guide = guide_of("root ::= \"a\"", "root ::= \"b\"");
  for (const TokenId token : guide.forced(16)) ASSERT_TRUE(guide.accept(token));
  EXPECT_TRUE(guide.over());
  EXPECT_TRUE(guide.forced(16).empty());
}

}  // namespace
}  // namespace pelton::grammar
