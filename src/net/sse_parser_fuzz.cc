// Any bytes, cut at will, give the same events; what comes out can be written and read again.
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "net/sse.h"

namespace {

using pelton::net::SseEvent;
using pelton::net::SseParser;

std::vector<std::string> parse(std::string_view text, size_t step) {
  SseParser parser({.event_bytes_max = 512});
  std::vector<std::string> events;
  for (size_t at = 0; at < text.size(); at += step) {
    const bool ok = parser
                        .feed(text.substr(at, step),
                              [&](const SseEvent& event) {
                                CHECK(event.data.size() <= 512);
                                events.push_back(event.event + "|" + event.data);
                              })
                        .ok();
    if (!ok) break;
  }
  return events;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const size_t step = 1 + data[0] % 16;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  CHECK(parse(text, text.size() + 1) == parse(text, step));

  std::string wire;
  pelton::net::append_sse_data(wire, text.substr(0, 100));
  CHECK(parse(wire, step).size() == 1);
  return 0;
}
