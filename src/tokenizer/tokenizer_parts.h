// What a tokenizer file says, in one form for all kinds of files: made by a loader, taken over by
// the Tokenizer.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "tokenizer/merge_table.h"
#include "tokenizer/token_bytes.h"
#include "tokenizer/token_lookup.h"

namespace pelton::tokenizer {

// A token that text becomes only on demand.
struct AddedToken {
  TokenId id;
  std::string text;
  bool special;  // a control token; otherwise a word that the model's makers added
};

// Of a SentencePiece model (sentence_pieces.h).
struct SentencePieces {
  explicit SentencePieces(size_t pieces) : lookup(pieces) {}

  // Where a "▁" is put before a text that has none of its own.
  enum class Prefix : uint8_t {
    kNever,
    kAlways,  // before every part of a text, also behind a control token
    kFirst,   // only where nothing stands before
  };
  TokenBytes spelled;  // as the model spells them: "▁the"
  TokenLookup lookup;  // of these
  std::array<TokenId, 256> byte_tokens = {};
  Prefix prefix = Prefix::kNever;
};

struct TokenizerParts {
  TokenBytes tokens;   // the added ones too
  TokenLookup lookup;  // of ordinary tokens only: encoding can yield nothing else
  MergeTable merges;
  bool whole_pieces_first;     // a piece that is a token is that token, whatever the merges say
  bool normal_form_c = false;  // text is brought into Unicode's form C before it is cut
  std::vector<std::string> split_patterns;  // each cuts the pieces of the one before
  std::vector<AddedToken> added;
  std::optional<SentencePieces> sentence_pieces = std::nullopt;  // then no patterns and no lookup
};

// The longest token in use has 128 bytes. Bounds what a bad file can make us do.
inline constexpr size_t kTokenBytesMax = 1024;

// Errors in the words all loaders use: the file's name, where in it, and what.
Error bad_tokenizer(const std::string& name, const std::string& field, const std::string& what);
Error unsupported_tokenizer(const std::string& name, const std::string& field,
                            const std::string& what);

}  // namespace pelton::tokenizer
