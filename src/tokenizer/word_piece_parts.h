// A WordPiece vocabulary, whatever file says it, as a tokenizer's parts. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer_parts.h"

namespace pelton::tokenizer {

struct WordPieceVocabulary {
  std::span<const std::string_view> texts;  // by id, as pieces.continuation has them; "": no token
  std::string unknown;
  std::vector<AddedToken> added;
};

// `pieces`: all but its tokens. A token decodes to a space and its word, or to the word's rest.
// Error kBadCheckpoint naming the token.
Result<TokenizerParts> word_piece_parts(WordPieces pieces, WordPieceVocabulary vocabulary,
                                        const std::string& name);

}  // namespace pelton::tokenizer
