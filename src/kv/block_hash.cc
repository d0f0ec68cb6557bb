#include "kv/block_hash.h"

#include <bit>
#include <cstring>

#include "base/random.h"

namespace pelton::kv {

namespace {

__extension__ using Wide = unsigned __int128;

}  // namespace

BlockHasher::BlockHasher(uint64_t seed) {
  for (size_t i = 0; i < keys_.size(); ++i) keys_[i] = base::random_bits(seed, i);
  start_ = {base::random_bits(seed, keys_.size()), base::random_bits(seed, keys_.size() + 1)};
}

BlockHash BlockHasher::root(const Origin& origin) const {
  BlockHash state = start_;
  state.low ^= base::mix64(static_cast<uint64_t>(origin.adapter) + 1);
  return absorb(state, origin.salt.data(), origin.salt.size());
}

BlockHash BlockHasher::extend(const BlockHash& parent, std::span<const TokenId> tokens) const {
  return absorb(parent, reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes());
}

// The length goes in first, so that a last strip filled up with zeros is not one that ends in
// zeros.
BlockHash BlockHasher::absorb(BlockHash state, const char* bytes, size_t byte_count) const {
  state.high ^= byte_count * 0x9E3779B97F4A7C15ull;
  size_t at = 0;
  for (; at + kStripBytes <= byte_count; at += kStripBytes) state = absorb_strip(state, bytes + at);
  if (at < byte_count || byte_count == 0) {
    char rest[kStripBytes] = {};
    if (at < byte_count) std::memcpy(rest, bytes + at, byte_count - at);
    state = absorb_strip(state, rest);
  }
  return state;
}

BlockHash BlockHasher::absorb_strip(const BlockHash& state, const char* strip) const {
  uint64_t words[8];
  std::memcpy(words, strip, sizeof(words));
  Wide sum = 0;
  Wide shifted = 0;
  for (size_t i = 0; i < 8; i += 2) {
    sum += Wide{words[i] + keys_[i]} * (words[i + 1] + keys_[i + 1]);
    shifted += Wide{words[i] + keys_[i + 2]} * (words[i + 1] + keys_[i + 3]);
  }
  const uint64_t low =
      base::mix64(state.low ^ static_cast<uint64_t>(sum)) + static_cast<uint64_t>(sum >> 64);
  const uint64_t high = base::mix64(state.high ^ static_cast<uint64_t>(shifted)) +
                        static_cast<uint64_t>(shifted >> 64);
  return {base::mix64(low + std::rotl(high, 32)),
          base::mix64(high * 0xD1342543DE82EF95ull ^ std::rotl(low, 17))};
}

}  // namespace pelton::kv
