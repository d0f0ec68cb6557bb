#include "chat/dialect.h"

#include <algorithm>

namespace pelton::chat {
namespace {

constexpr ReasoningSyntax kThinkTags = {"<think>", "</think>"};
constexpr ReasoningSyntax kThinkBrackets = {"[THINK]", "[/THINK]"};

}  // namespace

std::optional<ReasoningSyntax> find_reasoning_syntax(std::string_view name) {
  if (name == "plain" || name == "none") return ReasoningSyntax{};
  if (name == "mistral") return kThinkBrackets;
  for (const std::string_view known :
       {"think", "qwen3", "deepseek_r1", "deepseek_v3", "deepseek_v31", "hermes", "glm45"}) {
    if (name == known) return kThinkTags;
  }
  return std::nullopt;
}

ReasoningSyntax reasoning_syntax_of(std::string_view chat_template) {
  for (const ReasoningSyntax& syntax : {kThinkTags, kThinkBrackets}) {
    const bool has = chat_template.find(syntax.begin) != std::string_view::npos ||
                     chat_template.find(syntax.end) != std::string_view::npos;
    if (has) return syntax;
  }
  return {};
}

bool Dialect::stops_at(TokenId id) const {
  return std::find(stops.begin(), stops.end(), id) != stops.end();
}

bool Dialect::is_marker(TokenId id) const {
  return std::find(marker_tokens.begin(), marker_tokens.end(), id) != marker_tokens.end();
}

Dialect make_dialect(const ReasoningSyntax& reasoning, const CallSyntax& calls,
                     const tokenizer::Tokenizer& tokenizer) {
  Dialect dialect{.reasoning = reasoning, .calls = &calls};
  std::vector<std::string_view> markers(calls.markers.begin(), calls.markers.end());
  if (reasoning.marks()) {
    markers.push_back(reasoning.begin);
    markers.push_back(reasoning.end);
  }
  for (const std::string_view marker : markers) {
    const std::optional<TokenId> id = tokenizer.special_id(marker);
    if (id && tokenizer.is_special(*id)) dialect.marker_tokens.push_back(*id);
  }
  return dialect;
}

std::optional<TokenId> token_of(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  if (const std::optional<TokenId> special = tokenizer.special_id(text)) return special;
  const std::vector<TokenId> tokens = tokenizer.encode(text);
  return tokens.size() == 1 ? std::optional(tokens[0]) : std::nullopt;
}

}  // namespace pelton::chat
