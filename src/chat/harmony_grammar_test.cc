#include "chat/harmony_grammar.h"

#include <gtest/gtest.h>

#include "chat/text_network.h"
#include "chat/tiny_tokenizer.h"
#include "grammar/ebnf.h"

namespace pelton::chat {
namespace {

using grammar::GrammarState;

const tokenizer::Tokenizer& tokenizer() {
  static const tokenizer::Tokenizer kTokenizer = tiny_tokenizer();
  return kTokenizer;
}
const HarmonyTokens& tokens() {
  static const HarmonyTokens kTokens = HarmonyTokens::find(tokenizer()).value();
  return kTokens;
}
const std::shared_ptr<const grammar::TokenTrie>& trie() {
  static const std::shared_ptr<const grammar::TokenTrie> kTrie =
      grammar::TokenTrie::of(tokenizer());
  return kTrie;
}

std::shared_ptr<const grammar::TokenGrammar> choice(const std::vector<std::string>& texts) {
  return grammar::TokenGrammar::make(grammar::compile_choice(texts).value(), trie()).value();
}

GrammarState guide_of(const TurnRules& rules) {
  return GrammarState(harmony_network(rules, tokens(), trie()).value());
}

bool allows(const GrammarState& guide, TokenId token) {
  std::vector<uint64_t> room;
  const std::span<const uint64_t> mask = guide.mask(room);
  const auto word = static_cast<size_t>(token) / 64;
  return mask.empty() || (word < mask.size() && (mask[word] >> (token % 64) & 1) != 0);
}

// How many of the text's tokens the guide lets pass; its masks say the same as it does.
size_t passed(GrammarState guide, std::string_view text) {
  size_t count = 0;
  for (const TokenId token : tokenizer().encode_with_special(text)) {
    const bool allowed = allows(guide, token);
    EXPECT_EQ(allowed, guide.accept(token)) << "token " << count << " of " << text;
    if (!allowed) return count;
    ++count;
  }
  EXPECT_TRUE(guide.over()) << text;
  return count;
}

bool passes(const GrammarState& guide, std::string_view text) {
  return passed(guide, text) == tokenizer().encode_with_special(text).size();
}

// Every way of writing it that the tests of the parser know as the model's own.
TEST(HarmonyGrammar, AFinalMessageFollowsItsGrammar) {
  const GrammarState guide = guide_of({.answer = choice({"yes", "no"})});
  EXPECT_TRUE(passes(guide, "<|channel|>final<|message|>yes<|return|>"));
  EXPECT_TRUE(passes(guide, "<|channel|>final <|constrain|>json<|message|>no<|return|>"));
  EXPECT_TRUE(passes(guide,
                     "<|channel|>analysis<|message|>Hm {\"<|end|><|start|>assistant<|channel|>"
                     "analysis<|message|><|end|><|start|>assistant<|channel|>final<|message|>no"
                     "<|return|>"));
  EXPECT_EQ(passed(guide, "<|channel|>final<|message|>ye<|return|>"), 5u);
  EXPECT_EQ(passed(guide, "<|channel|>final<|message|>yes<|end|>"), 6u);
  EXPECT_EQ(passed(guide, "<|channel|>final<|message|>maybe"), 3u);
  EXPECT_EQ(passed(guide, "Hello"), 0u);
  EXPECT_EQ(passed(guide, "<|return|>"), 0u);
  EXPECT_EQ(passed(guide, "<|channel|>comment"), 1u);
  EXPECT_EQ(passed(guide, "<|channel|>analysis to=python"), 2u);
  EXPECT_EQ(passed(guide, "<|channel|>analysis<|message|>Hm<|return|>"), 5u);
  EXPECT_EQ(passed(guide, "<|channel|>analysis<|message|><|end|><|start|>user"), 5u);
}

TurnRules two_functions() {
  return {.answer = nullptr,
          .functions = {{.name = "get_x", .arguments = choice({"{}", "{\"a\":1}"})},
                        {.name = "get", .arguments = nullptr}}};
}

TEST(HarmonyGrammar, CallsAreAddressedInBothPlaces) {
  const GrammarState guide = guide_of(two_functions());
  for (const std::string_view header :
       {"<|channel|>commentary to=functions.get_x <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.get_x<|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.get_x<|message|>",
        " to=functions.get_x<|channel|>commentary <|constrain|>json<|message|>",
        " to=functions.get_x<|channel|>commentary<|message|>",
        " to=functions.get_x<|channel|>commentary json<|message|>",
        "<|channel|>commentary to=functions.get_x json<|message|>",
        "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary "
        "to=functions.get_x<|message|>",
        "<|channel|>analysis<|message|>?<|end|><|start|>assistant to=functions.get_x<|channel|>"
        "commentary<|message|>"}) {
    SCOPED_TRACE(header);
    EXPECT_TRUE(passes(guide, std::string(header) + "{}<|call|>"));
    EXPECT_TRUE(passes(guide, std::string(header) + "{\"a\":1}<|call|>"));
    const size_t header_tokens = tokenizer().encode_with_special(header).size();
    EXPECT_EQ(passed(guide, std::string(header) + "{\"b\":1}<|call|>"), header_tokens + 2);
    EXPECT_EQ(passed(guide, std::string(header) + "{<|call|>"), header_tokens + 1);
  }
  // The other function's arguments, and the final message, are free.
  EXPECT_TRUE(passes(guide, "<|channel|>commentary to=functions.get<|message|>what?<|call|>"));
  EXPECT_TRUE(passes(guide, "<|channel|>final<|message|>Hello world<|return|>"));
  EXPECT_LT(passed(guide, "<|channel|>commentary to=functions.nope<|message|>{}<|call|>"),
            tokenizer().encode_with_special("<|channel|>commentary to=functions.nope").size());
}

TEST(HarmonyGrammar, AForcedCallGoesOnWhereItsOpeningEnds) {
  TurnRules rules = two_functions();
  rules.begin = TurnRules::Begin::kFirstCall;
  EXPECT_TRUE(passes(guide_of(rules), "{}<|call|>"));
  EXPECT_EQ(passed(guide_of(rules), "<|call|>"), 0u);
  rules.begin = TurnRules::Begin::kAnyCall;
  EXPECT_TRUE(passes(guide_of(rules),
                     ".get_x<|channel|>commentary <|constrain|>json<|message|>{}<|call|>"));
  EXPECT_TRUE(passes(guide_of(rules), ".get<|channel|>commentary<|message|>free<|call|>"));
  EXPECT_EQ(passed(guide_of(rules), ".get<|message|>"), 1u);
}

TEST(HarmonyGrammar, ACopyGoesItsOwnWay) {
  GrammarState guide = guide_of({.answer = choice({"yes", "no"})});
  for (const TokenId token : tokenizer().encode_with_special("<|channel|>final<|message|>")) {
    ASSERT_TRUE(guide.accept(token));
  }
  GrammarState fork = guide;
  ASSERT_TRUE(fork.accept('n'));
  EXPECT_FALSE(fork.accept('e'));
  ASSERT_TRUE(guide.accept('y'));
  EXPECT_TRUE(guide.accept('e'));
  EXPECT_TRUE(fork.accept('o'));
}

TEST(HarmonyGrammar, PlainTextEndsWithAStopToken) {
  const GrammarState guide(text_network(choice({"left"}), tokens().stop_tokens()));
  EXPECT_TRUE(passes(guide, "left<|return|>"));
  EXPECT_TRUE(passes(guide, "left<|endoftext|>"));
  EXPECT_EQ(passed(guide, "le<|return|>"), 2u);
}

TEST(HarmonyGrammar, WhetherAMaskLeavesAnything) {
  const std::vector<uint64_t> mask = {0, 1ull << 5 | 1ull << 9};
  EXPECT_TRUE(grammar::allows_other(mask, {}));
  EXPECT_TRUE(grammar::allows_other(mask, std::vector<TokenId>{69}));
  EXPECT_FALSE(grammar::allows_other(mask, std::vector<TokenId>{69, 73}));
  EXPECT_FALSE(grammar::allows_other(std::vector<uint64_t>{0, 0}, {}));
}

}  // namespace
}  // namespace pelton::chat
