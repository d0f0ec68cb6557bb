#include "tokenizer/charsmap.h"

#include <cstring>

#include <fmt/format.h>

namespace pelton::tokenizer {
namespace {

uint32_t little_endian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return value;
}

// A unit: the label that leads to it (8 bits and the highest), whether a value follows, and where
// its children are, relative to it.
uint32_t label(uint32_t unit) {
  return unit & (uint32_t{1} << 31 | 0xFF);
}
bool has_value(uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
uint32_t value(uint32_t unit) {
  return unit & ((uint32_t{1} << 31) - 1);
}
uint32_t offset(uint32_t unit) {
  return (unit >> 10) << ((unit & (uint32_t{1} << 9)) >> 6);
}

}  // namespace

Result<Charsmap> Charsmap::parse(std::string_view bytes) {
  const auto bad = [](std::string what) {
    return Error{.code = ErrorCode::kInvalidArgument, .message = std::move(what), .field = {}};
  };
  if (bytes.size() > kBytesMax) {
    return bad(fmt::format("{} bytes, the limit is {}", bytes.size(), kBytesMax));
  }
  if (bytes.size() < 4) return bad("has no size of its trie");
  const uint32_t trie_bytes = little_endian(bytes);
  bytes.remove_prefix(4);
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > bytes.size()) {
    return bad(fmt::format("says a trie of {} bytes, and {} follow", trie_bytes, bytes.size()));
  }
  Charsmap map;
  for (size_t at = 0; at < trie_bytes; at += 4) {
    map.units_.push_back(little_endian(bytes.substr(at)));
  }
  map.values_ = bytes.substr(trie_bytes);
  return map;
}

std::optional<Charsmap::Match> Charsmap::match(std::string_view text) const {
  std::optional<Match> longest;
  size_t node = offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (node >= units_.size() || label(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset(unit);
    if (!has_value(unit)) continue;
    if (node >= units_.size()) break;
    const size_t at = value(units_[node]);
    if (at >= values_.size()) break;
    longest = {i + 1, std::string_view(values_).substr(at, std::strlen(values_.c_str() + at))};
  }
  return longest;
}

}  // namespace pelton::tokenizer
