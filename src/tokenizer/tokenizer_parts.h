// What a tokenizer file says, in one form for all kinds of files: made by a loader, taken over by
// the Tokenizer.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/merge_table.h"
#include "tokenizer/special_texts.h"
#include "tokenizer/token_bytes.h"
#include "tokenizer/token_lookup.h"
#include "tokenizer/unigram.h"
#include "tokenizer/word_pieces.h"

namespace pelton::tokenizer {

// A token that text becomes only on demand.
struct AddedToken {
  TokenId id;
  std::string text;
  bool special;  // a control token; otherwise a word that the model's makers added
  // White space before it, or behind it, goes with it.
  bool strips_left = false;
  bool strips_right = false;
  // Looked for in the text as it is normalised, and so after all others.
  bool normalized = false;
};

// Of a SentencePiece model, BPE or unigram (sentence_pieces.h).
struct SentencePieces {
  explicit SentencePieces(size_t pieces) : lookup(pieces) {}

  // Where a "▁" is put before a text.
  enum class Prefix : uint8_t {
    kNever,
    kAlways,  // before every part of a text, also behind a control token
    kFirst,   // only where nothing stands before
  };
  TokenBytes spelled;  // as the model spells them: "▁the"
  TokenLookup lookup;  // of these; BPE's
  std::array<TokenId, 256> byte_tokens = {};
  bool has_bytes = true;  // else a character that is no token is `unknown`, a run of them one
  TokenId unknown = kNoToken;
  Prefix prefix = Prefix::kNever;
  // Not before a text that begins with a space or a "▁" of its own: as Hugging Face's Metaspace has
  // it. SentencePiece's own dummy prefix, and a Prepend, come there, too.
  bool prefix_where_missing = false;
  bool removes_extra_spaces = false;
  SpecialTexts words;  // stand as one, whatever is around them; spelled as pieces are
  std::optional<Charsmap> charsmap = std::nullopt;
  std::optional<Unigram> unigram = std::nullopt;  // none: BPE
};

// What is put before and behind a text that is a prompt by itself.
struct PromptFrame {
  std::vector<TokenId> begin;  // a bos token
  std::vector<TokenId> end;
  // Of two texts that are one prompt: begin, the first text, middle, the second, end. Absent: the
  // file says nothing of two.
  struct Pair {
    std::vector<TokenId> begin;
    std::vector<TokenId> middle;
    std::vector<TokenId> end;
  };
  std::optional<Pair> pair = std::nullopt;
};

struct TokenizerParts {
  TokenBytes tokens;   // the added ones too
  TokenLookup lookup;  // of ordinary tokens only: encoding can yield nothing else
  MergeTable merges;
  bool whole_pieces_first;     // a piece that is a token is that token, whatever the merges say
  bool normal_form_c = false;  // text is brought into Unicode's form C before it is cut
  std::vector<std::string> split_patterns;  // each cuts the pieces of the one before
  std::vector<AddedToken> added;
  // One of these: then there are no patterns, and no lookup.
  std::optional<SentencePieces> sentence_pieces = std::nullopt;
  std::optional<WordPieces> word_pieces = std::nullopt;
  PromptFrame frame = {};
};

// The longest token in use has 128 bytes. Bounds what a bad file can make us do.
inline constexpr size_t kTokenBytesMax = 1024;

// Errors in the words all loaders use: the file's name, where in it, and what.
Error bad_tokenizer(const std::string& name, const std::string& field, const std::string& what);
Error unsupported_tokenizer(const std::string& name, const std::string& field,
                            const std::string& what);

}  // namespace pelton::tokenizer
