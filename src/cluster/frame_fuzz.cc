// Any bytes, cut at will, give the same frames; what comes out can be written and read again.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "cluster/frame.h"

namespace {

using pelton::cluster::Frame;
using pelton::cluster::FrameReader;

std::string read_again(std::string_view wire, size_t step) {
  FrameReader reader(1 << 12);
  std::string again;
  for (size_t at = 0; at < wire.size(); at += step) {
    reader.push(wire.substr(at, step));
    for (;;) {
      const auto frame = reader.next();
      if (!frame.ok()) return again;
      if (!*frame) break;
      CHECK((*frame)->payload.size() <= 1 << 12);
      append_frame(again, **frame);
    }
  }
  return again;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const size_t step = 1 + data[0] % 16;
  const std::string_view wire(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string whole = read_again(wire, wire.size() + 1);
  CHECK(read_again(wire, step) == whole);
  CHECK(read_again(whole, 7) == whole);
  return 0;
}
