// A client's request as the tokens of its prompt, with the code that workers make theirs with: the
// API's parsers, the chat format, the tokenizer. What is not understood, or depends on what only a
// worker knows (past responses), has none: the request is routed by load then. A turn that a worker
// sampled in other tokens than these ends the part that is known to be held. Immutable; any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "chat/format.h"
#include "tokenizer/tokenizer.h"

namespace pelton::gateway {

// A pool's model, as text.
struct ModelText {
  std::unique_ptr<const tokenizer::Tokenizer> tokenizer;
  std::shared_ptr<const chat::ChatFormat> chat;  // null: it has no conversations
};

struct PromptSource {
  std::string_view path;
  std::string_view body;
  std::string date;  // "2026-11-23", for formats that say it
};

struct PromptTokens {
  std::vector<TokenId> tokens;
  std::string cache_salt;  // that the request names; empty: none
  int answers = 1;
  std::optional<int64_t> output_max;  // tokens of each; none: it does not say
  bool may_move = true;               // another worker may go on with it
};

// None: it has no single prompt, or one with a suffix, or is none of these: chat completions,
// messages, completions, generate.
std::optional<PromptTokens> prompt_tokens(const ModelText& text, const PromptSource& source);

}  // namespace pelton::gateway
