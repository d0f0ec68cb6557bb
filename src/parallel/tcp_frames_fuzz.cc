// What comes on a connection between ranks is foreign bytes until a proof says otherwise: nothing
// passes without the token, and what passes is what its writer wrote.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "parallel/tcp_frames.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::parallel;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string nonce(kNonceBytes, 'n');
  CHECK(!read_hello(bytes, "token", nonce).ok());
  const std::string hello =
      write_hello({.ranks = 3, .rank = 2, .part_bytes = 4096, .nonce = nonce}, "token", nonce);
  std::string changed = hello;
  for (size_t i = 0; i < std::min(size, changed.size()); ++i) {
    changed[i] = static_cast<char>(changed[i] ^ bytes[i]);
  }
  const auto read = read_hello(changed, "token", nonce);
  CHECK(read.ok() == (changed == hello));
  if (size >= kFrameHeadBytes) {
    const std::string_view first = bytes.substr(0, kFrameHeadBytes);
    const auto head = read_frame_head(first, 1, 4096);
    if (head.ok()) {
      CHECK(head->round == 1 && head->bytes <= 4096);
      char again[kFrameHeadBytes];
      write_frame_head(*head, again);
      CHECK(std::string_view(again, sizeof again) == first);
    }
  }
  return 0;
}
