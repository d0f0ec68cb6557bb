#include "chat/harmony_format.h"

#include <algorithm>
#include <utility>

#include "chat/harmony_conversation.h"
#include "chat/harmony_grammar.h"
#include "chat/harmony_renderer.h"

namespace pelton::chat {
namespace {

constexpr std::string_view kFunctions = "functions.";

// A message to "assistant", "all" or "user" is to nobody who could be called.
bool goes_to_tool(const MessageHeader& header) {
  const std::optional<std::string>& recipient = header.recipient;
  return recipient && !recipient->empty() && *recipient != "assistant" && *recipient != "all" &&
         *recipient != "user";
}

CallTarget target_of(const std::string& recipient) {
  CallTarget target{.name = recipient, .recipient = recipient};
  target.is_function = recipient.starts_with(kFunctions) && recipient.size() > kFunctions.size();
  target.is_builtin = recipient == "python" || recipient.starts_with("browser.");
  if (target.is_function) target.name = recipient.substr(kFunctions.size());
  return target;
}

PartKind kind_of(const MessageHeader& header) {
  if (header.role != Role::kAssistant) return PartKind::kOther;
  if (goes_to_tool(header)) return PartKind::kCall;
  if (header.channel == kAnalysis) return PartKind::kReasoning;
  return header.channel == kCommentary ? PartKind::kPreamble : PartKind::kAnswer;
}

PartEnd part_end(MessageEnd::By by) {
  switch (by) {
    case MessageEnd::By::kNextMessage:
      return {PartEnd::By::kNextPart};
    case MessageEnd::By::kEndOfStream:
      return {PartEnd::By::kEndOfStream};
    default:
      return {PartEnd::By::kModel};
  }
}

class HarmonyTurnParser final : public TurnParser {
 public:
  HarmonyTurnParser(const tokenizer::Tokenizer& tokenizer, const HarmonyTokens& tokens,
                    HarmonyParser::Start start)
      : parser_(tokenizer, tokens, {.start = start}) {}

  void push(TokenId token, std::vector<ReplyEvent>& events) override {
    parser_.push(token, parsed_);
    token_was_text_ = parser_.token_was_text();
    translate(events);
  }
  bool push_plain(TokenId token, std::string& text) override {
    if (!parser_.push_plain(token, text)) return false;
    token_was_text_ = true;
    return true;
  }
  void finish(std::vector<ReplyEvent>& events) override {
    parser_.finish(parsed_);
    token_was_text_ = false;
    translate(events);
  }
  int repair_count() const override { return parser_.repair_count(); }

 private:
  void translate(std::vector<ReplyEvent>& events) {
    for (HarmonyEvent& event : parsed_) {
      if (const auto* message = std::get_if<MessageBegin>(&event)) {
        begin(message->header, events);
      } else if (auto* text = std::get_if<TextDelta>(&event)) {
        events.emplace_back(PartText{std::move(text->text)});
      } else {
        place_.reset();
        events.emplace_back(part_end(std::get<MessageEnd>(event).by));
      }
    }
    parsed_.clear();
  }

  void begin(const MessageHeader& header, std::vector<ReplyEvent>& events) {
    PartBegin part{.kind = kind_of(header)};
    if (part.kind == PartKind::kCall) part.call = target_of(*header.recipient);
    place_ = part.kind;
    events.emplace_back(std::move(part));
  }

  HarmonyParser parser_;
  std::vector<HarmonyEvent> parsed_;  // reused
};

// Whether what follows each `marker` begins with `word`; and whether any does.
struct Following {
  bool all = true;
  bool any = false;
};
Following following(std::span<const TokenId> tokens, TokenId marker,
                    const std::vector<TokenId>& word) {
  Following found;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] != marker) continue;
    const std::span<const TokenId> behind = tokens.subspan(i + 1);
    const bool fits =
        behind.size() >= word.size() && std::equal(word.begin(), word.end(), behind.begin());
    found.all = found.all && fits;
    found.any = found.any || fits;
  }
  return found;
}

class HarmonyPieces final : public PromptPieces {
 public:
  // `opening`: what the prompt holds of the model's turn.
  HarmonyPieces(const HarmonyRenderer& renderer, HarmonyConversation conversation,
                std::vector<TokenId> opening)
      : renderer_(renderer), conversation_(std::move(conversation)) {
    opening_ = std::move(opening);
    const std::vector<HarmonyMessage>& all = conversation_.messages;
    const auto last = std::find_if(all.rbegin(), all.rend(), [](const HarmonyMessage& m) {
      return m.role == Role::kAssistant && m.channel == kFinal;
    });
    const auto open_turn = static_cast<size_t>(all.rend() - last);
    for (size_t next = 0; next < all.size();) {
      HarmonyRenderer::MessageRange range{.first = next, .end = next + 1};
      while (range.end < all.size() && all[range.end].turn == all[next].turn) ++range.end;
      ranges_.push_back(range);
      pieces_.push_back({.turn = all[next].turn, .shows_reasoning = next >= open_turn});
      next = range.end;
    }
  }

  void append(size_t piece, std::vector<TokenId>& out) const override {
    renderer_.append(conversation_, ranges_[piece], out);
  }

 private:
  const HarmonyRenderer& renderer_;
  const HarmonyConversation conversation_;
  std::vector<HarmonyRenderer::MessageRange> ranges_;
};

class HarmonyFormat final : public ChatFormat {
 public:
  HarmonyFormat(const tokenizer::Tokenizer& tokenizer, const HarmonyTokens& tokens)
      : tokenizer_(tokenizer), tokens_(tokens), renderer_(tokenizer_, tokens_) {
    renderer_.append_turn_start(turn_start_);
    assistant_ = tokenizer_.encode(role_name(Role::kAssistant));
    analysis_ = tokenizer_.encode(kAnalysis);
    markers_.begins = {tokens_.channel};
    markers_.begins.insert(markers_.begins.end(), analysis_.begin(), analysis_.end());
    markers_.begins.push_back(tokens_.message);
    markers_.ends = {tokens_.end,     tokens_.start, tokens_.channel,
                     tokens_.message, tokens_.call,  tokens_.return_};
  }

  bool has_builtin_tools() const override { return true; }
  std::string_view name() const override { return "harmony"; }
  std::string choice() const override {
    return "harmony: the vocabulary has its control tokens; templates are not asked";
  }

  Result<std::unique_ptr<PromptPieces>> pieces(Conversation conversation) const override {
    std::vector<TokenId> opening;
    if (conversation.continues_last) {
      TRY(check_continued(conversation));
      opening = answer_opening();
      tokenizer_.encode(conversation.messages.back().text, opening);
      conversation.messages.pop_back();
    }
    return std::unique_ptr<PromptPieces>(std::make_unique<HarmonyPieces>(
        renderer_, harmony_conversation(std::move(conversation)), std::move(opening)));
  }
  // How much it reasons is said in the system message.
  std::vector<TokenId> turn_opening(Thinking) const override { return {}; }
  std::vector<TokenId> call_opening(std::string_view function_name) const override;

  std::vector<TokenId> cacheable_turn(std::vector<TokenId> turn) const override;
  bool has_reasoning(std::span<const TokenId> turn) const override {
    return following(turn, tokens_.channel, analysis_).any;
  }

  // Whom a message goes to stands in its header: a ReplyReader can leave it out.
  std::unique_ptr<TurnParser> parser(const ParserOptions&) const override {
    return harmony_turn_parser(tokenizer_, tokens_, HarmonyParser::Start::kAssistantHeader);
  }
  Result<std::shared_ptr<const TurnGrammar>> turn_grammar(
      const TurnRules& rules, std::shared_ptr<const grammar::TokenTrie> trie) const override {
    return harmony_network(rules, tokens_, std::move(trie));
  }
  bool reads_argument(std::string_view name) const override {
    return name == "reasoning_effort" || name == "tools";
  }
  CallFrame call_frame(std::string_view, TurnRules::Begin) const override { return {}; }
  const ReasoningMarkers& reasoning() const override { return markers_; }
  std::vector<TokenId> reasoning_end(AfterReasoning after) const override;
  std::vector<TokenId> stop_tokens(std::span<const TokenId> configured) const override;

 private:
  // "<|channel|>final<|message|>", behind a turn's start.
  std::vector<TokenId> answer_opening() const {
    std::vector<TokenId> opening = {tokens_.channel};
    tokenizer_.encode(kFinal, opening);
    opening.push_back(tokens_.message);
    return opening;
  }

  const tokenizer::Tokenizer& tokenizer_;
  const HarmonyTokens tokens_;
  const HarmonyRenderer renderer_;
  std::vector<TokenId> assistant_;
  std::vector<TokenId> analysis_;
  ReasoningMarkers markers_;
};

std::vector<TokenId> HarmonyFormat::call_opening(std::string_view function_name) const {
  std::vector<TokenId> opening;
  if (function_name.empty()) {
    // Without the dot: it belongs to the name's first token (".get").
    tokenizer_.encode(" to=functions", opening);
    return opening;
  }
  tokenizer_.encode(" to=functions." + std::string(function_name), opening);
  opening.push_back(tokens_.channel);
  tokenizer_.encode("commentary ", opening);
  opening.push_back(tokens_.constrain);
  tokenizer_.encode("json", opening);
  opening.push_back(tokens_.message);
  return opening;
}

std::vector<TokenId> HarmonyFormat::cacheable_turn(std::vector<TokenId> turn) const {
  if (turn.empty()) return {};
  const bool returned = turn.back() == tokens_.return_;
  if (!returned && turn.back() != tokens_.call) return {};
  // With ignore_eos it may go on after its end.
  const std::vector<TokenId> stops = tokens_.stop_tokens();
  const bool went_on = std::find_first_of(turn.begin(), turn.end() - 1, stops.begin(),
                                          stops.end()) != turn.end() - 1;
  if (went_on) return {};
  if (!following(turn, tokens_.start, assistant_).all) return {};
  if (returned && has_reasoning(turn)) return {};
  if (returned) turn.back() = tokens_.end;
  return turn;
}

std::vector<TokenId> HarmonyFormat::reasoning_end(AfterReasoning after) const {
  std::vector<TokenId> end = {tokens_.end};
  end.insert(end.end(), turn_start_.begin(), turn_start_.end());
  if (after == AfterReasoning::kFreeMessage) return end;
  const std::vector<TokenId> opening = answer_opening();
  end.insert(end.end(), opening.begin(), opening.end());
  return end;
}

std::vector<TokenId> HarmonyFormat::stop_tokens(std::span<const TokenId> configured) const {
  std::vector<TokenId> all = tokens_.stop_tokens();
  for (const TokenId id : configured) {
    // <|end|> closes one message of several; some generation_configs list it all the same.
    const bool known = std::find(all.begin(), all.end(), id) != all.end();
    if (!known && id != tokens_.end) all.push_back(id);
  }
  return all;
}

}  // namespace

Result<std::shared_ptr<const ChatFormat>> harmony_format(const tokenizer::Tokenizer& tokenizer) {
  TRY_ASSIGN(const HarmonyTokens tokens, HarmonyTokens::find(tokenizer));
  return std::shared_ptr<const ChatFormat>(std::make_shared<HarmonyFormat>(tokenizer, tokens));
}

std::unique_ptr<TurnParser> harmony_turn_parser(const tokenizer::Tokenizer& tokenizer,
                                                const HarmonyTokens& tokens,
                                                HarmonyParser::Start start) {
  return std::make_unique<HarmonyTurnParser>(tokenizer, tokens, start);
}

}  // namespace pelton::chat
