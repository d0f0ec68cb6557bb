#include "chat/chatml_format.h"

#include <algorithm>
#include <utility>

#include "chat/chatml_renderer.h"
#include "chat/dialect_grammar.h"
#include "chat/dialect_parser.h"

namespace pelton::chat {
namespace {

class ChatMlPieces final : public PromptPieces {
 public:
  ChatMlPieces(const Conversation& conversation, const tokenizer::Tokenizer& tokenizer,
               const ChatMlTokens& tokens)
      : tokenizer_(tokenizer), tokens_(tokens), blocks_(chatml_blocks(conversation)) {
    if (conversation.continues_last) {
      blocks_.back().text.append_tokens(tokenizer_, tokens_, opening_);
      blocks_.pop_back();
    } else if (conversation.thinking == Thinking::kOff) {
      reasoning_ = PromptReasoning::kOver;  // by turn_opening()
    }
    for (const ChatMlBlock& block : blocks_) {
      pieces_.push_back({.turn = block.turn, .shows_reasoning = block.shows_reasoning});
    }
  }

  void append(size_t piece, std::vector<TokenId>& out) const override {
    append_block(blocks_[piece], tokenizer_, tokens_, out);
  }

 private:
  const tokenizer::Tokenizer& tokenizer_;
  const ChatMlTokens& tokens_;
  std::vector<ChatMlBlock> blocks_;
};

class ChatMlFormat final : public ChatFormat {
 public:
  ChatMlFormat(const tokenizer::Tokenizer& tokenizer, const ChatMlTokens& tokens)
      : tokenizer_(tokenizer), tokens_(tokens) {
    turn_start_ = {tokens_.start};
    tokenizer_.encode("assistant\n", turn_start_);
    dialect_ =
        make_dialect(*find_reasoning_syntax("think"), *find_call_syntax("hermes"), tokenizer_);
    dialect_.turn_start = tokens_.start;
    dialect_.stops = stop_tokens({});
    if (!tokens_.think || !tokens_.think_end) return;
    markers_.begins = {*tokens_.think};
    markers_.ends = {*tokens_.think_end, tokens_.end, tokens_.start};
    if (tokens_.end_of_text) markers_.ends.push_back(*tokens_.end_of_text);
  }

  std::string_view name() const override { return "chatml"; }
  std::string choice() const override {
    return "chatml: the model's files have no chat template, and the vocabulary has <|im_start|>";
  }

  Result<std::unique_ptr<PromptPieces>> pieces(Conversation conversation) const override {
    if (conversation.continues_last) TRY(check_continued(conversation));
    return std::unique_ptr<PromptPieces>(
        std::make_unique<ChatMlPieces>(conversation, tokenizer_, tokens_));
  }
  std::vector<TokenId> turn_opening(Thinking thinking) const override {
    if (thinking == Thinking::kOn) return {};
    return tokenizer_.encode_with_special("<think>\n\n</think>\n\n");
  }
  std::vector<TokenId> call_opening(std::string_view function_name) const override {
    return forced_call_opening(*dialect_.calls, function_name, tokenizer_);
  }

  std::vector<TokenId> cacheable_turn(std::vector<TokenId> turn) const override;
  bool has_reasoning(std::span<const TokenId> turn) const override {
    return tokenizer_.decode(turn).find(kThink) != std::string::npos;
  }

  std::unique_ptr<TurnParser> parser(const ParserOptions& options) const override {
    return std::make_unique<DialectParser>(tokenizer_, dialect_, options);
  }
  bool reads_argument(std::string_view name) const override {
    return name == "enable_thinking" || name == "tools";
  }
  Result<std::shared_ptr<const TurnGrammar>> turn_grammar(
      const TurnRules& rules, std::shared_ptr<const grammar::TokenTrie> trie) const override {
    return dialect_grammar(rules, {dialect_, tokenizer_}, std::move(trie));
  }
  CallFrame call_frame(std::string_view function_name, TurnRules::Begin begin) const override {
    return dialect_call_frame(*dialect_.calls, tokenizer_, function_name, begin);
  }
  const ReasoningMarkers& reasoning() const override { return markers_; }
  // What comes after is the model's to choose either way: an answer has no marker of its own.
  std::vector<TokenId> reasoning_end(AfterReasoning) const override {
    return tokenizer_.encode_with_special("\n</think>\n\n");
  }
  std::vector<TokenId> stop_tokens(std::span<const TokenId> configured) const final;

 private:
  const tokenizer::Tokenizer& tokenizer_;
  const ChatMlTokens tokens_;
  Dialect dialect_;
  ReasoningMarkers markers_;
};

std::vector<TokenId> ChatMlFormat::cacheable_turn(std::vector<TokenId> turn) const {
  if (turn.empty() || turn.back() != tokens_.end) return {};
  // With ignore_eos it may go on after its end.
  const bool went_on = std::any_of(turn.begin(), turn.end() - 1, [&](TokenId token) {
    return tokens_.stops(token) || token == tokens_.start;
  });
  if (went_on) return {};
  // Reasoning before an answer is not shown again; before a call it is, until somebody asks more.
  const std::string text = tokenizer_.decode(turn);
  const bool calls = text.find(kToolCallEnd) != std::string::npos;
  if (!calls && text.find(kThink) != std::string::npos) return {};
  tokenizer_.encode("\n", turn);
  return turn;
}

std::vector<TokenId> ChatMlFormat::stop_tokens(std::span<const TokenId> configured) const {
  std::vector<TokenId> all = {tokens_.end};
  if (tokens_.end_of_text) all.push_back(*tokens_.end_of_text);
  for (const TokenId id : configured) {
    if (std::find(all.begin(), all.end(), id) == all.end()) all.push_back(id);
  }
  return all;
}

}  // namespace

Result<std::shared_ptr<const ChatFormat>> chatml_format(const tokenizer::Tokenizer& tokenizer) {
  TRY_ASSIGN(const ChatMlTokens tokens, ChatMlTokens::find(tokenizer));
  return std::shared_ptr<const ChatFormat>(std::make_shared<ChatMlFormat>(tokenizer, tokens));
}

}  // namespace pelton::chat
