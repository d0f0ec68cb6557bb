#include "tokenizer/token_lookup.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/random.h"

namespace pelton::tokenizer {
namespace {

template <typename Word>
uint64_t load(const char* at) {
  Word word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// 1 to 8.
uint64_t low_bytes(size_t count) {
  static_assert(std::endian::native == std::endian::little);
  return ~uint64_t{0} >> (64 - 8 * count);
}

// At most 8 bytes, zero-padded; with the length beside it this is the piece itself.
uint64_t short_key(const char* at, size_t length) {
  if (length >= 4) {
    const uint64_t low = load<uint32_t>(at);
    const uint64_t high = load<uint32_t>(at + length - 4);
    return length == 8 ? low | high << 32 : low | (high >> ((8 - length) * 8)) << 32;
  }
  if (length >= 2) {
    const uint64_t low = load<uint16_t>(at);
    return length == 2 ? low : low | uint64_t{static_cast<uint8_t>(at[2])} << 16;
  }
  return static_cast<uint8_t>(at[0]);
}

// Not keyed: who can choose a model's tokens can choose the model, and a piece that finds nothing
// costs one probe sequence whatever it is.
uint64_t long_key(const char* at, size_t length) {
  uint64_t hash = length;
  size_t i = 0;
  for (; i + 8 < length; i += 8) hash = base::mix64(hash ^ load<uint64_t>(at + i));
  return base::mix64(hash ^ load<uint64_t>(at + length - 8));
}

// Fibonacci hashing of key and length: the high bits of the product depend on all of the key's.
size_t slot_of(uint64_t key, size_t length) {
  const uint64_t product = (key + length) * 0x9E3779B97F4A7C15ull;
  return static_cast<size_t>(product ^ (product >> 32));
}

}  // namespace

uint64_t TokenLookup::key_of(std::string_view bytes) {
  return bytes.size() <= 8 ? short_key(bytes.data(), bytes.size())
                           : long_key(bytes.data(), bytes.size());
}

TokenLookup::TokenLookup(size_t tokens)
    : slots_(std::bit_ceil(tokens * 2 + 2)), mask_(slots_.size() - 1) {}

TokenId TokenLookup::insert(const TokenBytes& tokens, TokenId id) {
  const std::string_view bytes = tokens[id];
  const uint64_t key = key_of(bytes);
  size_t slot = slot_of(key, bytes.size()) & mask_;
  while (slots_[slot].id != kNoToken) {
    const Slot& taken = slots_[slot];
    if (taken.key == key && taken.length == bytes.size() && tokens[taken.id] == bytes) {
      return taken.id;
    }
    slot = (slot + 1) & mask_;
  }
  slots_[slot] = {key, id, static_cast<uint32_t>(bytes.size())};
  if (bytes.size() > bytes_max_) bytes_max_ = bytes.size();
  return kNoToken;
}

TokenId TokenLookup::find(const TokenBytes& tokens, std::string_view bytes) const {
  if (bytes.empty() || bytes.size() > bytes_max_) return kNoToken;
  const uint64_t key = key_of(bytes);
  return find_from(tokens, bytes, key, slot_of(key, bytes.size()) & mask_);
}

void TokenLookup::find_together(const TokenBytes& tokens, std::span<const std::string_view> pieces,
                                const char* text_end, TokenId* ids) const {
  uint64_t keys[kTogether];
  size_t slots[kTogether];
  CHECK(pieces.size() <= kTogether);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::string_view piece = pieces[i];
    // Lengths come in no order: a branch for each would be mispredicted for every other piece.
    const bool short_and_inside =
        (static_cast<int>(piece.size() <= 8) & static_cast<int>(text_end - piece.data() >= 8)) != 0;
    keys[i] =
        short_and_inside ? load<uint64_t>(piece.data()) & low_bytes(piece.size()) : key_of(piece);
    slots[i] = slot_of(keys[i], pieces[i].size()) & mask_;
    __builtin_prefetch(&slots_[slots[i]]);
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    ids[i] = find_from(tokens, pieces[i], keys[i], slots[i]);
  }
}

TokenId TokenLookup::find_from(const TokenBytes& tokens, std::string_view bytes, uint64_t key,
                               size_t slot) const {
  while (slots_[slot].id != kNoToken) {
    const Slot& taken = slots_[slot];
    if (taken.key == key && taken.length == bytes.size() &&
        (bytes.size() <= 8 || tokens[taken.id] == bytes)) {
      return taken.id;
    }
    slot = (slot + 1) & mask_;
  }
  return kNoToken;
}

}  // namespace pelton::tokenizer
