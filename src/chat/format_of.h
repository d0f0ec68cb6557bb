// Which chat format a model has: its vocabulary says.
#pragma once

#include <memory>

#include "base/result.h"
#include "chat/format.h"

namespace pelton::chat {

// `tokenizer` outlives it. Error kUnsupported if the vocabulary has no format's control tokens:
// such a model goes on with text, and has no conversations.
Result<std::shared_ptr<const ChatFormat>> format_of(const tokenizer::Tokenizer& tokenizer);

}  // namespace pelton::chat
