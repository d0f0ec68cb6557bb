// Any bytes from a client or a server, in any pieces: the same events, within bounds.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "net/websocket.h"

namespace {

using pelton::net::WebSocketReader;

constexpr size_t kMessageMax = 300;

std::vector<std::string> events_of(std::string_view bytes, size_t piece, bool of_server) {
  WebSocketReader reader({.message_bytes_max = kMessageMax, .of_server = of_server});
  std::vector<std::string> events;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    reader.append(bytes.substr(at, piece));
    for (auto event = reader.advance(); event != WebSocketReader::Event::kNone;
         event = reader.advance()) {
      std::string told = std::to_string(static_cast<int>(event));
      if (event == WebSocketReader::Event::kBad || event == WebSocketReader::Event::kClose) {
        CHECK(reader.close().code >= 1000 && reader.close().code < 5000);
        told += ':' + std::to_string(reader.close().code);
      } else {
        CHECK(reader.payload().size() <= kMessageMax);
        told += ':' + reader.payload();
      }
      if (event == WebSocketReader::Event::kText) {
        CHECK(pelton::base::is_valid_utf8(reader.payload()));
      }
      events.push_back(std::move(told));
    }
  }
  return events;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t piece = data[0] % 8 == 0 ? 1 + data[0] / 8 % 16 : 1 + size_t{data[0]};
  for (const bool of_server : {false, true}) {
    CHECK(events_of(bytes, piece, of_server) == events_of(bytes, bytes.size() + 1, of_server));
  }
  return 0;
}
