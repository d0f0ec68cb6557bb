// Byte-pair encoding of one piece of text. Pieces have no length limit (a run of letters is one),
// so long ones take a way that is O(n log n). Immutable; any thread.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "tokenizer/merge_table.h"
#include "tokenizer/token_lookup.h"

namespace pelton::tokenizer {

class BytePairEncoder {
 public:
  // `byte_tokens[b]`: the token of the single byte b.
  BytePairEncoder(const std::array<TokenId, 256>& byte_tokens, MergeTable merges);

  // Appends the tokens of `piece`: of all neighbours that merge, those of the lowest rank do (the
  // leftmost of equals), until none do.
  void encode(std::string_view piece, std::vector<TokenId>& out) const;

  // The same of parts that are tokens already.
  void merge(std::span<const TokenId> parts, std::vector<TokenId>& out) const;

  // encode(), by the way that is made for long pieces.
  void encode_long(std::string_view piece, std::vector<TokenId>& out) const;

 private:
  uint32_t byte_pair_rank(std::string_view piece, size_t i) const {
    return byte_pair_rank_[static_cast<uint8_t>(piece[i])][static_cast<uint8_t>(piece[i + 1])];
  }
  void encode_short(std::string_view piece, std::vector<TokenId>& out) const;

  std::array<TokenId, 256> byte_tokens_;
  MergeTable merges_;
  // merges_.rank of two single bytes: where every piece begins.
  std::vector<std::array<uint32_t, 256>> byte_pair_rank_;
};

}  // namespace pelton::tokenizer
