// Reads Mistral's tekken.json: ranks of byte-level tokens in base64, control tokens ahead of them,
// and the split pattern. Pure.
//
// Source: mistral-common's tokens/tokenizers/tekken.py.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "tokenizer/tokenizer_parts.h"

namespace pelton::tokenizer {

// Errors: kBadCheckpoint naming the field.
Result<TokenizerParts> read_tekken_file(std::string_view text, const std::string& name);

}  // namespace pelton::tokenizer
