// Reads .tiktoken rank files: a line per token, base64 of its bytes, a space, its rank; ranks from
// 0 without holes. The file says neither pattern nor control tokens: those are o200k_harmony's.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "tokenizer/tokenizer_parts.h"

namespace pelton::tokenizer {

// `name` is the file's, for messages. Errors: kBadCheckpoint, naming the line; kUnsupported.
Result<TokenizerParts> read_tiktoken(std::string_view text, const std::string& name);

}  // namespace pelton::tokenizer
