// What a tokenizer.json of type Unigram or WordPiece says. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer_json_draft.h"
#include "tokenizer/tokenizer_parts.h"

namespace pelton::tokenizer {

// Errors of both: kBadCheckpoint naming the field; kUnsupported for normalizers and pre-tokenizers
// that such models have not.
Result<TokenizerParts> read_unigram_json(const TokenizerJsonDraft& draft,
                                         const std::vector<AddedToken>& added,
                                         const std::string& name);
Result<TokenizerParts> read_word_piece_json(const TokenizerJsonDraft& draft,
                                            std::vector<AddedToken> added, const std::string& name);

}  // namespace pelton::tokenizer
