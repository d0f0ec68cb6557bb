#include "server/random_id.h"

#include <algorithm>

#include "base/random.h"

namespace pelton::server {

std::string random_id(std::string_view prefix, const IdSource& source) {
  static constexpr std::string_view kAlphabet =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  constexpr int kLength = 24;
  std::string id(prefix);
  const uint64_t stream = base::random_bits(source.seed, source.counter);
  for (int i = 0; i < kLength; ++i) {
    const uint64_t bits = base::random_bits(stream, static_cast<uint64_t>(i));
    id += kAlphabet[bits % kAlphabet.size()];
  }
  return id;
}

std::string answer_id(std::string_view prefix, std::string_view request_id, uint64_t draw) {
  if (request_id.empty()) return random_id(prefix, {.seed = draw, .counter = 0});
  return std::string(prefix).append(request_id);
}

bool is_plain_id(std::string_view id) {
  constexpr size_t kIdBytesMax = 128;
  return !id.empty() && id.size() <= kIdBytesMax &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

}  // namespace pelton::server
