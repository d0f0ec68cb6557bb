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

// Kinds of characters: where an automaton stays where it is on all of a kind, whole subtrees of
// tokens are decided at once. Not among them, for JSON's strings are not plain text there: control
// characters, the quotation mark and the backslash.
enum CharKinds : uint8_t {
  kLowerKind = 1,
  kUpperKind = 2,
  kDigitKind = 4,
  kDashKind = 8,    // - and _
  kPathKind = 16,   // . / : @
  kSpaceKind = 32,  // ' '
  kOtherKind = 64,  // what else ASCII prints
  kWideKind = 128,  // all of Unicode above ASCII
};
// The kind of an ASCII byte, or 0.
uint8_t kind_of_ascii(uint8_t byte);

class TokenTrie {
 public:
  // The tokens of `texts`, whose ids are their places; an empty text is no token. Tokens have at
  // most 64 Ki bytes.
  explicit TokenTrie(std::span<const std::string_view> texts);
  ~TokenTrie();
  // The tokenizer outlives the trie's users.
  static std::shared_ptr<const TokenTrie> of(const tokenizer::Tokenizer& tokenizer);

  const ByteTrie& all() const { return all_; }
  // By node of all(): what its byte and all below it consist of, if that is plain characters, the
  // first of which begins there; and the most characters from there to a token's end.
  struct Below {
    uint8_t kinds = 0;  // 0: other than plain characters
    uint16_t chars_max = 0;
  };
  const Below& below(uint32_t node) const { return below_[node]; }
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

  // Appends the tokens that the tokenizer would make of `text`; without one (tests), the longest
  // token each time.
  void spell(std::string_view text, std::vector<TokenId>& out) const;

  // Masks that depend on the vocabulary alone, shared by all grammars over it (guards itself).
  MaskCache& shared_masks() const { return *shared_masks_; }

 private:
  struct Text {
    uint32_t begin = 0;
    uint32_t length = 0;
  };

  void find_kinds();

  const tokenizer::Tokenizer* tokenizer_ = nullptr;

  std::vector<char> pool_;
  std::vector<Text> texts_;
  ByteTrie all_;
  std::vector<Below> below_;
  ByteTrie quoted_;
  std::vector<uint64_t> quoted_mask_;
  bool has_every_byte_ = false;
  std::unique_ptr<MaskCache> shared_masks_;
};

}  // namespace pelton::grammar
