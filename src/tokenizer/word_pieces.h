// WordPiece, BERT's tokenizer: text is cleaned, cut into words at white space and punctuation, and
// each word written greedily, the longest token first; what stands within a word has a mark before
// it ("##ing"). A word that cannot be written so is one unknown token. Immutable once filled; any
// thread.
//
// Source: google-research/bert, tokenization.py; tokenizers' BertNormalizer and BertPreTokenizer.
//
//   "Playing, déjà" -> playing , deja -> play, ##ing, ",", de, ##ja
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "tokenizer/token_bytes.h"
#include "tokenizer/token_lookup.h"

namespace pelton::tokenizer {

struct WordPieces {
  explicit WordPieces(size_t tokens) : lookup(tokens) {}

  TokenBytes spelled;  // as the vocabulary spells them: "##ing"
  TokenLookup lookup;  // of these
  std::string continuation = "##";
  TokenId unknown = kNoToken;
  size_t word_characters_max = 100;
  bool cleans = true;            // control characters are dropped, all white space is space
  bool parts_ideographs = true;  // each Chinese character is a word
  bool lower_cases = true;
  bool strips_accents = true;
};

// Appends the tokens of `text`, valid UTF-8.
void encode_word_pieces(const WordPieces& pieces, std::string_view text, std::vector<TokenId>& out);

}  // namespace pelton::tokenizer
