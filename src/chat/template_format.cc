#include "chat/template_format.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "chat/control_texts.h"
#include "chat/dialect_grammar.h"
#include "chat/dialect_parser.h"
#include "chat/json_extent.h"

namespace pelton::chat {
namespace {

// A template has one piece: what it writes of a turn depends on all others.
class TemplatePieces final : public PromptPieces {
 public:
  struct Parts {
    jinja::Text prompt;
    jinja::Text opening;
    PromptReasoning reasoning = PromptReasoning::kNotBegun;
    // Of a prompt that ends within the last message: where its text begins.
    std::optional<size_t> continued_at = {};
  };

  TemplatePieces(const Parts& parts, const ControlTexts& texts) {
    texts.encode(parts.prompt, tokens_);
    texts.encode(parts.opening, opening_);
    reasoning_ = parts.reasoning;
    pieces_.push_back({});
    if (parts.continued_at) split(parts.prompt.slice(0, *parts.continued_at), texts);
  }

  void append(size_t, std::vector<TokenId>& out) const override {
    out.insert(out.end(), tokens_.begin(), tokens_.end());
  }

 private:
  // The tokens behind `before` become the opening. Where a token reaches over its end, nothing
  // does: a parser then takes the answer for a turn's beginning.
  void split(const jinja::Text& before, const ControlTexts& texts) {
    std::vector<TokenId> head;
    texts.encode(before, head);
    if (head.size() > tokens_.size() || !std::equal(head.begin(), head.end(), tokens_.begin())) {
      return;
    }
    opening_.assign(tokens_.begin() + std::ssize(head), tokens_.end());
    tokens_.resize(head.size());
  }

  std::vector<TokenId> tokens_;
};

// U+E000 as often as it takes to stand nowhere in the text: once more than its longest run has it.
std::string absent_mark(std::string_view text) {
  constexpr std::string_view kSign = "\uE000";
  size_t longest = 0;
  for (size_t at = text.find(kSign); at != std::string_view::npos; at = text.find(kSign, at)) {
    size_t run = 0;
    for (; text.substr(at).starts_with(kSign); at += kSign.size()) ++run;
    longest = std::max(longest, run);
  }
  std::string mark;
  for (size_t i = 0; i <= longest; ++i) mark += kSign;
  return mark;
}

// What a prompt writes of the model's turn: "<think>\n", "<think>\n\n</think>\n\n", "</think>", if
// it ends so.
TemplatePieces::Parts parts_of(jinja::Text text, const ReasoningSyntax& reasoning) {
  TemplatePieces::Parts parts;
  const std::string_view bytes = text.bytes();
  const auto ends_with = [&](std::string_view marker, size_t end) {
    const size_t last = bytes.substr(0, end).find_last_not_of(kJsonSpace);
    const size_t size = last == std::string_view::npos ? 0 : last + 1;
    return bytes.substr(0, size).ends_with(marker) ? size - marker.size() : std::string_view::npos;
  };
  size_t begin = std::string_view::npos;
  if (reasoning.marks()) {
    begin = ends_with(reasoning.begin, bytes.size());
    parts.reasoning = PromptReasoning::kOpen;
    if (begin == std::string_view::npos) {
      parts.reasoning = PromptReasoning::kOver;
      begin = ends_with(reasoning.end, bytes.size());
      if (begin != std::string_view::npos)
        begin = std::min(begin, ends_with(reasoning.begin, begin));
    }
  }
  // Nobody who writes a marker at the end of a message opens the model's turn with it.
  const bool is_input =
      begin != std::string_view::npos && !text.input().empty() && text.input().back().end > begin;
  if (begin == std::string_view::npos || is_input) {
    parts.reasoning = PromptReasoning::kNotBegun;
    parts.prompt = std::move(text);
    return parts;
  }
  parts.prompt = text.slice(0, begin);
  parts.opening = text.slice(begin, text.size());
  return parts;
}

class TemplateFormat final : public ChatFormat {
 public:
  TemplateFormat(const tokenizer::Tokenizer& tokenizer, PromptTemplate prompt_template,
                 Dialect dialect)
      : tokenizer_(tokenizer),
        template_(std::move(prompt_template)),
        dialect_(std::move(dialect)),
        texts_(tokenizer) {
    if (!dialect_.reasoning.marks()) return;
    const std::optional<TokenId> begin = token_of(tokenizer_, dialect_.reasoning.begin);
    const std::optional<TokenId> end = token_of(tokenizer_, dialect_.reasoning.end);
    markers_.in_text = !begin || !end;
    if (markers_.in_text) return;
    markers_.begins = {*begin};
    markers_.ends = {*end};
    markers_.ends.insert(markers_.ends.end(), dialect_.stops.begin(), dialect_.stops.end());
  }

  std::string_view name() const override { return dialect_.calls->name; }
  std::string choice() const override {
    return fmt::format("template of {}; {}", template_.source().from, dialect_.why);
  }
  bool runs_template() const override { return true; }

  Result<std::unique_ptr<PromptPieces>> pieces(Conversation conversation) const override {
    TRY_ASSIGN(jinja::Text text, template_.render(conversation));
    TemplatePieces::Parts parts;
    if (conversation.continues_last) {
      TRY_ASSIGN(parts, up_to_last_message(text, conversation));
    } else if (conversation.begins_turn) {
      parts = parts_of(std::move(text), dialect_.reasoning);
    } else {
      parts.prompt = std::move(text);
    }
    return std::unique_ptr<PromptPieces>(std::make_unique<TemplatePieces>(parts, texts_));
  }
  // It is the prompt's opening: the template writes it.
  std::vector<TokenId> turn_opening(Thinking) const override { return {}; }
  std::vector<TokenId> call_opening(std::string_view function_name) const override {
    return forced_call_opening(*dialect_.calls, function_name, tokenizer_);
  }

  // A template writes the turns of the past anew.
  std::vector<TokenId> cacheable_turn(std::vector<TokenId>) const override { return {}; }
  bool has_reasoning(std::span<const TokenId> turn) const override {
    return dialect_.reasoning.marks() &&
           tokenizer_.decode(turn).find(dialect_.reasoning.end) != std::string::npos;
  }

  std::unique_ptr<TurnParser> parser(const ParserOptions& options) const override {
    return std::make_unique<DialectParser>(tokenizer_, dialect_, options);
  }
  bool types_by_schema() const override { return dialect_.calls->types_by_schema; }
  bool reads_argument(std::string_view name) const override { return template_.names(name); }

  Result<std::shared_ptr<const TurnGrammar>> turn_grammar(
      const TurnRules& rules, std::shared_ptr<const grammar::TokenTrie> trie) const override {
    return dialect_grammar(rules, {dialect_, tokenizer_}, std::move(trie));
  }
  CallFrame call_frame(std::string_view function_name, TurnRules::Begin begin) const override {
    return dialect_call_frame(*dialect_.calls, tokenizer_, function_name, begin);
  }
  const ReasoningMarkers& reasoning() const override { return markers_; }
  std::vector<TokenId> reasoning_end(AfterReasoning) const override {
    return tokenizer_.encode_with_special("\n" + std::string(dialect_.reasoning.end) + "\n\n");
  }
  std::vector<TokenId> stop_tokens(std::span<const TokenId> configured) const override {
    std::vector<TokenId> all = dialect_.stops;
    for (const TokenId id : configured) {
      if (std::find(all.begin(), all.end(), id) == all.end()) all.push_back(id);
    }
    return all;
  }

 private:
  // The prompt without what the template writes behind the last message's text. The text itself may
  // stand there more than once ("end" in "<|im_end|>"), so the place is asked of the template: it
  // writes the conversation once more with a mark behind that text.
  Result<TemplatePieces::Parts> up_to_last_message(const jinja::Text& text,
                                                   Conversation conversation) const {
    const bool has_text =
        !conversation.messages.empty() && conversation.messages.back().kind != Message::Kind::kCall;
    if (!has_text) return no_end_of_last_message();
    const std::string mark = absent_mark(text.bytes());
    std::string& last = conversation.messages.back().text;
    const std::string said = last.substr(jinja::leading_space(last));
    const size_t space = jinja::trailing_space(last);
    last += mark;
    TRY_ASSIGN(const jinja::Text marked, template_.render(conversation));
    const size_t at = marked.bytes().rfind(mark);
    if (at == std::string::npos) return no_end_of_last_message();
    // Space at the text's end stays where the template leaves it.
    for (const size_t end : {at, at - std::min(space, at)}) {
      const std::string_view before = std::string_view(marked.bytes()).substr(0, end);
      if (text.bytes().starts_with(before)) return ending_with(text.slice(0, end), said);
    }
    return no_end_of_last_message();
  }
  // Of a prompt that ends with the text `said`, perhaps without the space at its end.
  static TemplatePieces::Parts ending_with(jinja::Text prompt, std::string_view said) {
    TemplatePieces::Parts parts{.prompt = std::move(prompt), .opening = {}};
    const std::string_view bytes = parts.prompt.bytes();
    const std::string_view trimmed = said.substr(0, said.size() - jinja::trailing_space(said));
    for (const std::string_view text : {said, trimmed}) {
      if (text.empty() || !bytes.ends_with(text)) continue;
      parts.continued_at = bytes.size() - text.size();
      break;
    }
    return parts;
  }
  static Error no_end_of_last_message() {
    return {.code = ErrorCode::kInvalidArgument,
            .message =
                "'messages': the model's chat template does not write the last message's text "
                "as it is, so that nothing can go on behind it (continue_final_message)",
            .field = "messages"};
  }

  const tokenizer::Tokenizer& tokenizer_;
  const PromptTemplate template_;
  const Dialect dialect_;
  const ControlTexts texts_;
  ReasoningMarkers markers_;
};

}  // namespace

std::shared_ptr<const ChatFormat> template_format(const tokenizer::Tokenizer& tokenizer,
                                                  PromptTemplate prompt_template, Dialect dialect) {
  return std::make_shared<TemplateFormat>(tokenizer, std::move(prompt_template),
                                          std::move(dialect));
}

}  // namespace pelton::chat
