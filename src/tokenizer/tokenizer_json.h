// Reads Hugging Face tokenizer.json files of byte-level BPE. Streams through the file: gpt-oss' has
// 28 MB, most of it merges.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "tokenizer/tokenizer_parts.h"

namespace pelton::tokenizer {

// `name` is the file's, for messages. Errors: kBadCheckpoint naming the field; kUnsupported for
// another kind of model, normalizer or pre-tokenizer.
Result<TokenizerParts> read_tokenizer_json(std::string_view text, const std::string& name);

}  // namespace pelton::tokenizer
