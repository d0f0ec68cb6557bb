// What a model's turns look like within: how reasoning is marked, how calls are spelled, and which
// of these markers are tokens of its vocabulary. A value; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "chat/call_syntax.h"
#include "tokenizer/tokenizer.h"

namespace pelton::chat {

// "<think>" ... "</think>". Empty: the model does not reason, or does not mark it.
struct ReasoningSyntax {
  std::string_view begin;
  std::string_view end;

  bool marks() const { return !begin.empty(); }
};

// By its name here, or vLLM's for the same: "think", "mistral", "plain". Nothing: there is none of
// that name.
std::optional<ReasoningSyntax> find_reasoning_syntax(std::string_view name);
// The one that a template writes; its marker in the template is the reason.
ReasoningSyntax reasoning_syntax_of(std::string_view chat_template);

struct Dialect {
  ReasoningSyntax reasoning;
  const CallSyntax* calls = nullptr;  // never null; plain: no calls
  std::string why;                    // calls and reasoning are these, for people
  // What a turn begins with where the model may write whole turns: "<|im_start|>". Behind it a role
  // stands, up to a line's end.
  std::optional<TokenId> turn_start;
  std::vector<TokenId> stops;  // end the turn
  // Control tokens that are markers of this dialect: read as their text.
  std::vector<TokenId> marker_tokens;

  bool stops_at(TokenId id) const;
  bool is_marker(TokenId id) const;
};

Dialect make_dialect(const ReasoningSyntax& reasoning, const CallSyntax& calls,
                     const tokenizer::Tokenizer& tokenizer);

// The token that is exactly this text, if there is one.
std::optional<TokenId> token_of(const tokenizer::Tokenizer& tokenizer, std::string_view text);

}  // namespace pelton::chat
