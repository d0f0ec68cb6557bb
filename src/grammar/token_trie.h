// The vocabulary as a tree of bytes: what masks are computed over. Control tokens are not in it: a
// grammar never allows one. Immutable once built, one per tokenizer; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "grammar/byte_trie.h"

namespace pelton::tokenizer {
class Tokenizer;
}

namespace pelton::grammar {

class MaskCache;

class TokenTrie {
 public:
  // The tokens of `texts`, whose ids are their places; an empty text is no token. Tokens have at
  // most 64 Ki bytes.
  explicit TokenTrie(std::span<const std::string_view> texts);
  ~TokenTrie();
  static std::shared_ptr<const TokenTrie> of(const tokenizer::Tokenizer& tokenizer);

  const ByteTrie& all() const { return all_; }
  // Those with a quotation mark in them, which may end a JSON string.
  const ByteTrie& quoted() const { return quoted_; }
  std::span<const uint64_t> quoted_mask() const { return quoted_mask_; }

  // One more than the highest id; masks have this many bits.
  int vocab_size() const { return static_cast<int>(texts_.size()); }
  size_t mask_words() const { return (texts_.size() + 63) / 64; }
  std::string_view bytes(TokenId id) const;

  // Whether each of the 256 bytes is a token of its own: then nothing a grammar allows is out of
  // reach.
  bool has_every_byte() const { return has_every_byte_; }

  // Masks that depend on the vocabulary alone, shared by all grammars over it (guards itself).
  MaskCache& shared_masks() const { return *shared_masks_; }

 private:
  struct Text {
    uint32_t begin = 0;
    uint32_t length = 0;
  };

  std::vector<char> pool_;
  std::vector<Text> texts_;
  ByteTrie all_;
  ByteTrie quoted_;
  std::vector<uint64_t> quoted_mask_;
  bool has_every_byte_ = false;
  std::unique_ptr<MaskCache> shared_masks_;
};

}  // namespace pelton::grammar
