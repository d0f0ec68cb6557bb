// SentencePiece's models: text is normalised, spaces written as "▁", and then, over the whole text,
// neighbouring characters merge by rank (BPE), or the likeliest pieces are taken (unigram). A
// character that is no token is its bytes' tokens, or an unknown one. Immutable; any thread.
//
//   "Hi 木" -> "▁Hi▁木" -> ▁Hi, ▁, <0xE6>, <0x9C>, <0xA8>
#pragma once

#include <cstdint>
#include <optional>
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

// Whether a tokenizer.json describes such a model: BPE with "byte_fallback", or "Unigram".
bool is_sentence_pieces(const TokenizerJsonDraft& draft);

// "▁the" -> " the".
std::string with_spaces(std::string_view piece);
// The byte that "<0x41>" stands for.
std::optional<uint8_t> byte_of(std::string_view text);

// Errors: kBadCheckpoint naming the field; kUnsupported for another normalizer or pre-tokenizer
// than writes spaces as "▁".
Result<TokenizerParts> read_sentence_pieces(const TokenizerJsonDraft& draft,
                                            std::vector<AddedToken> added, const std::string& name);

// Appends the tokens of `text`, valid UTF-8. `at_start`: nothing stands before it.
void encode_sentence_pieces(const SentencePieces& pieces, const BytePairEncoder& merges,
                            std::string_view text, bool at_start, std::vector<TokenId>& out);

}  // namespace pelton::tokenizer
