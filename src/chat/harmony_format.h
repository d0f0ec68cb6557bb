// Harmony, gpt-oss' chat format, as a ChatFormat.
#pragma once

#include <memory>

#include "base/result.h"
#include "chat/format.h"
#include "chat/harmony_parser.h"

namespace pelton::chat {

// `tokenizer` outlives it. Error kUnsupported, naming the token, if the vocabulary lacks one of
// Harmony's control tokens.
Result<std::shared_ptr<const ChatFormat>> harmony_format(const tokenizer::Tokenizer& tokenizer);

// Messages as parts of a turn. All outlive it.
std::unique_ptr<TurnParser> harmony_turn_parser(const tokenizer::Tokenizer& tokenizer,
                                                const HarmonyTokens& tokens,
                                                HarmonyParser::Start start);

}  // namespace pelton::chat
