#include "chat/chatml_format.h"

#include <gtest/gtest.h>

#include "chat/format_of.h"
#include "chat/harmony_format.h"
#include "chat/reply.h"
#include "chat/tiny_chatml_tokenizer.h"
#include "chat/tiny_tokenizer.h"
#include "grammar/ebnf.h"

namespace pelton::chat {
namespace {

class ChatMlFormatTest : public testing::Test {
 protected:
  std::vector<TokenId> ids(std::string_view text) const {
    return tokenizer_.encode_with_special(text);
  }

  TurnRules::Grammar choice(const std::vector<std::string>& texts) const {
    return grammar::TokenGrammar::make(grammar::compile_choice(texts).value(), trie_).value();
  }

  // Arguments that are {"a": 1}, in the frame that a call of f has.
  TurnRules::Function function(TurnRules::Begin begin) const {
    const CallFrame frame = format_->call_frame("f", begin);
    return {.name = "f", .arguments = choice({frame.before + "{\"a\": 1}" + frame.after})};
  }

  // How many tokens of `text` a guide lets through.
  size_t passed(const TurnRules& rules, std::string_view text) const {
    grammar::GrammarState guide(format_->turn_grammar(rules, trie_).value());
    size_t count = 0;
    for (const TokenId token : ids(text)) {
      std::vector<uint64_t> room;
      if (!grammar::may_be(guide.mask(room), token) || !guide.accept(token)) return count;
      ++count;
    }
    return guide.over() ? count : 0;
  }
  void expect_passes(const TurnRules& rules, std::string_view text) const {
    EXPECT_EQ(passed(rules, text), ids(text).size()) << text;
  }

  const tokenizer::Tokenizer tokenizer_ = tiny_chatml_tokenizer();
  const std::shared_ptr<const ChatFormat> format_ = chatml_format(tokenizer_).value();
  const std::shared_ptr<const grammar::TokenTrie> trie_ = grammar::TokenTrie::of(tokenizer_);
};

TEST(FormatOf, TheVocabularySays) {
  const tokenizer::Tokenizer harmony = tiny_tokenizer();
  const tokenizer::Tokenizer chatml = tiny_chatml_tokenizer();
  EXPECT_EQ(format_of(harmony).value()->name(), "harmony");
  EXPECT_EQ(format_of(chatml).value()->name(), "chatml");
  tokenizer::TokenizerFile none{.split_pattern = "."};
  for (int byte = 0; byte < 256; ++byte) none.tokens.emplace_back(1, static_cast<char>(byte));
  const auto plain = tokenizer::Tokenizer::from_json(write_tokenizer_json(none), "plain").value();
  EXPECT_EQ(format_of(plain).error().code, ErrorCode::kUnsupported);
}

TEST_F(ChatMlFormatTest, AnAnswerFollowsItsGrammarBehindReasoning) {
  const TurnRules rules{.answer = choice({"left", "right"})};
  expect_passes(rules, "left<|im_end|>");
  expect_passes(rules, "<think>\nanything { at all\n</think>left<|im_end|>");
  EXPECT_EQ(passed(rules, "up<|im_end|>"), 0u);
  EXPECT_LT(passed(rules, "<think>\nx\n</think>up<|im_end|>"), ids("<think>\nx\n</think>u").size());
}

TEST_F(ChatMlFormatTest, CallsFollowTheirArguments) {
  TurnRules rules{.functions = {function(TurnRules::Begin::kTurn)}};
  constexpr std::string_view kCall =
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  const std::string call(kCall);
  expect_passes(rules, call + "<|im_end|>");
  expect_passes(rules, call + "\n" + call + "<|im_end|>");
  expect_passes(rules, "I will look.\n" + call + "<|im_end|>");
  expect_passes(rules, "<think>\n<tool_call>?\n</think>" + call + "<|im_end|>");
  EXPECT_LT(passed(rules, "<tool_call>\n{\"name\": \"g\""),
            ids("<tool_call>\n{\"name\": \"g").size());

  for (const auto& [begin, name] :
       {std::pair(TurnRules::Begin::kFirstCall, "f"), std::pair(TurnRules::Begin::kAnyCall, "")}) {
    rules = {.functions = {function(begin)}, .begin = begin};
    const std::string opening = tokenizer_.decode(format_->call_opening(name));
    ASSERT_TRUE(call.starts_with(opening));
    expect_passes(rules, call.substr(opening.size()) + "<|im_end|>");
  }
}

TEST_F(ChatMlFormatTest, ATurnIsKeptWithTheLineBehindIt) {
  EXPECT_EQ(format_->cacheable_turn(ids("yes<|im_end|>")), ids("yes<|im_end|>\n"));
  EXPECT_EQ(format_->cacheable_turn(ids("yes")), std::vector<TokenId>()) << "cut short";
  EXPECT_TRUE(format_->cacheable_turn(ids("<think>\nhm\n</think>\n\nyes<|im_end|>")).empty());
  EXPECT_TRUE(format_->cacheable_turn(ids("yes<|im_end|>\n<|im_start|>user\n<|im_end|>")).empty());
  const std::vector<TokenId> call =
      ids("<think>\nhm\n</think>\n\n<tool_call>{}</tool_call><|im_end|>");
  EXPECT_EQ(format_->cacheable_turn(call).size(), call.size() + 1);
  EXPECT_TRUE(format_->has_reasoning(call));
  EXPECT_FALSE(format_->has_reasoning(ids("yes<|im_end|>")));
}

TEST_F(ChatMlFormatTest, StopsAndReasoningMarkers) {
  const TokenId end = tokenizer_.special_id("<|im_end|>").value();
  const TokenId text_end = tokenizer_.special_id("<|endoftext|>").value();
  EXPECT_EQ(format_->stop_tokens(std::vector<TokenId>{text_end, 7}),
            (std::vector<TokenId>{end, text_end, 7}));
  EXPECT_EQ(format_->reasoning().begins, ids("<think>"));
  EXPECT_EQ(format_->reasoning_end(AfterReasoning::kFinalAnswer), ids("\n</think>\n\n"));
  EXPECT_EQ(format_->turn_opening(Thinking::kOff), ids("<think>\n\n</think>\n\n"));
  EXPECT_TRUE(format_->turn_opening(Thinking::kOn).empty());
}

}  // namespace
}  // namespace pelton::chat
