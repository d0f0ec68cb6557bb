// Any bytes are a message or are refused; what is read is written so that it is read again.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "kv_transfer/peer_messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace transfer = pelton::kv_transfer;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto message = transfer::decode_peer_message(bytes);
  if (message.ok()) {
    const std::string written = encode(*message);
    const auto again = transfer::decode_peer_message(written);
    CHECK(again.ok());
    CHECK(*again == *message);
  }
  return 0;
}
