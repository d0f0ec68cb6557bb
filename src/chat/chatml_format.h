// ChatML with Qwen3's markers for reasoning and calls, as a ChatFormat.
#pragma once

#include <memory>

#include "base/result.h"
#include "chat/format.h"

namespace pelton::chat {

// `tokenizer` outlives it. Error kUnsupported, naming the token, if the vocabulary lacks one of
// ChatML's control tokens.
Result<std::shared_ptr<const ChatFormat>> chatml_format(const tokenizer::Tokenizer& tokenizer);

}  // namespace pelton::chat
