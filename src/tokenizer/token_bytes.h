// What each token id stands for: one blob of bytes and, per id, a place in it. Immutable once
// filled; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"

namespace pelton::tokenizer {

// Ids, ranks and merge numbers lie below this: three of them must fit into 64 bits. The largest
// vocabulary in use has some 260 thousand tokens.
inline constexpr int kTokenIdsMax = 1 << 21;

class TokenBytes {
 public:
  void reserve(size_t tokens, size_t bytes) {
    places_.reserve(tokens);
    blob_.reserve(bytes);
  }

  // False if `id` has bytes already. `id` is in [0, kTokenIdsMax), `bytes` not empty.
  [[nodiscard]] bool set(TokenId id, std::string_view bytes);

  // Empty for an id without a token.
  std::string_view operator[](TokenId id) const {
    if (static_cast<size_t>(id) >= places_.size()) return {};
    const Place place = places_[static_cast<size_t>(id)];
    return {blob_.data() + place.begin, place.length};
  }

  // Appends the bytes of all.
  void append_to(std::string& out, std::span<const TokenId> ids) const;

  // One more than the highest id that has a token.
  int size() const { return static_cast<int>(places_.size()); }

  size_t blob_bytes() const { return blob_.size(); }

 private:
  struct Place {
    uint32_t begin = 0;
    uint32_t length = 0;
  };
  std::string blob_;  // below 4 GiB: the loaders bound their files
  std::vector<Place> places_;
};

}  // namespace pelton::tokenizer
