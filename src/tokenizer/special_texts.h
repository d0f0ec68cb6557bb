// Finds the texts of control tokens in a text: leftmost first, and of those the longest. A trie.
// Immutable once filled; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/function_ref.h"
#include "base/token_id.h"
#include "tokenizer/token_lookup.h"

namespace pelton::tokenizer {

class SpecialTexts {
 public:
  struct Match {
    size_t begin;
    size_t length;
    TokenId id;
  };

  // False if that text is there already. `text` is not empty.
  [[nodiscard]] bool add(std::string_view text, TokenId id);

  bool empty() const { return ids_.size() == 1; }
  // The token whose text is exactly this; kNoToken if none.
  TokenId find(std::string_view text) const;

  // The first match at or behind `from`.
  std::optional<Match> next(std::string_view text, size_t from) const;
  // All texts that stand at `begin`, the shortest first.
  void each_at(std::string_view text, size_t begin,
               base::FunctionRef<void(size_t length, TokenId id)> found) const;

 private:
  std::optional<Match> match_at(std::string_view text, size_t begin) const;
  uint32_t child(uint32_t node, char byte) const;

  std::unordered_map<uint64_t, uint32_t> children_;  // (node, byte) -> node
  std::vector<TokenId> ids_{kNoToken};               // by node; node 0 is the root
  bool starts_[256] = {};
};

// The bytes of white space (Unicode's White_Space) at the front and at the end of valid UTF-8.
size_t white_space_at_front(std::string_view text);
size_t white_space_at_end(std::string_view text);

}  // namespace pelton::tokenizer
