// Any bytes, cut at will, are passed on as the same whole events; those before one that is none, as
// far as they came before it.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "gateway/foreign_answer.h"

namespace {

struct Passed {
  std::string events;
  bool ok = true;
};

Passed passed(std::string_view wire, size_t step) {
  pelton::gateway::ForeignAnswer answer("/v1/messages");
  pelton::net::HttpHeaders headers;
  headers.add("Content-Type", "text/event-stream");
  answer.begin(200, headers);
  Passed out;
  for (size_t at = 0; at < wire.size(); at += step) {
    const auto events = answer.push(wire.substr(at, step));
    if (!events.ok()) {
      out.ok = false;
      return out;
    }
    out.events += *events;
  }
  CHECK(answer.finish().ok() == answer.ended());
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const size_t step = 1 + data[0] % 16;
  const std::string_view wire(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Passed whole = passed(wire, wire.size() + 1);
  const Passed pieces = passed(wire, step);
  CHECK(wire.starts_with(pieces.events));
  CHECK(pieces.ok == whole.ok);
  CHECK(!whole.ok || pieces.events == whole.events);
  return 0;
}
