// The words between <|start|> and <|message|>: author, recipient, channel, content type, in any of
// the spellings the model uses, and in the broken ones it also uses. Pure functions; any thread.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/token_id.h"
#include "chat/harmony_message.h"
#include "chat/harmony_tokens.h"
#include "tokenizer/tokenizer.h"

namespace pelton::chat {

struct MessageHeader {
  Role role = Role::kAssistant;
  std::string name;  // a tool's full name, or what followed "role:"
  std::optional<std::string> channel;
  std::optional<std::string> recipient;
  std::optional<std::string> content_type;  // "<|constrain|>json", "json", "code"

  friend bool operator==(const MessageHeader&, const MessageHeader&) = default;
};

enum class HeaderDialect {
  kTolerant,  // ours: no control token's text in any name, last channel wins
  // What the Harmony library makes of it, mistakes included ("<|constrain|>json" as a recipient).
  // Only for the test that compares with it; falls back to kTolerant where the library gives up.
  kLibrary,
};

// A closed header: the tokens before <|message|>.
struct HeaderTokens {
  std::span<const TokenId> ids;
  std::optional<Role> role;  // known beforehand, from the prompt
};
MessageHeader parse_header(const HeaderTokens& header, HeaderDialect dialect,
                           const tokenizer::Tokenizer& tokenizer, const HarmonyTokens& tokens);

// A header that never saw its <|message|>: what can be understood of it, and the text that follows.
struct UnclosedHeader {
  MessageHeader header;
  std::string text;  // bytes, not yet checked for UTF-8
};
UnclosedHeader split_unclosed_header(const HeaderTokens& header,
                                     const tokenizer::Tokenizer& tokenizer,
                                     const HarmonyTokens& tokens);

}  // namespace pelton::chat
