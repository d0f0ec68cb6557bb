// Any bytes as a place in a stream and as a ticket: refused, or a place that is written as it is
// read; and no ticket is one.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "gateway/stream_ticket.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::gateway;  // NOLINT: a program of one file
  const std::string text(reinterpret_cast<const char*>(data), size);
  CHECK(!StreamTicket::open(text, "secret", {.tenant = "ann", .request_id = text}).ok());
  const pelton::Result<StreamPlace> place = StreamPlace::parse(text);
  if (!place.ok()) return 0;
  CHECK(place->choices.size() <= StreamPlace::kChoicesMax);
  const pelton::Result<StreamPlace> again = StreamPlace::parse(place->text());
  CHECK(again.ok() && again->choices == place->choices && again->digest == place->digest);
  return 0;
}
