// SentencePiece's BPE, as a tokenizer.json states it ("byte_fallback"): text is cut into
// characters, spaces written as "▁"; neighbours merge by rank over the whole text, and a character
// that is no token is its bytes' tokens. Immutable; any thread.
//
//   "Hi 木" -> "▁Hi▁木" -> ▁Hi, ▁, <0xE6>, <0x9C>, <0xA8>
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "tokenizer/byte_pair_encoder.h"
#include "tokenizer/token_bytes.h"
#include "tokenizer/token_lookup.h"
#include "tokenizer/tokenizer_json_draft.h"
#include "tokenizer/tokenizer_parts.h"

namespace pelton::tokenizer {

// Whether the file describes such a model.
bool is_sentence_pieces(const TokenizerJsonDraft& draft);

// Errors: kBadCheckpoint naming the field; kUnsupported for another normalizer or pre-tokenizer
// than writes spaces as "▁".
Result<TokenizerParts> read_sentence_pieces(const TokenizerJsonDraft& draft,
                                            std::vector<AddedToken> added, const std::string& name);

// Appends the tokens of `text`, valid UTF-8. `at_start`: nothing stands before it.
void encode_sentence_pieces(const SentencePieces& pieces, const BytePairEncoder& merges,
                            std::string_view text, bool at_start, std::vector<TokenId>& out);

}  // namespace pelton::tokenizer
