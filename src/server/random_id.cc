#include "server/random_id.h"

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

}  // namespace pelton::server
