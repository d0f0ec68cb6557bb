// A worker may send anything: however it is cut, the gateway makes the same of it, and nothing
// comes behind an end.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "gateway/answer_reader.h"
#include "gateway/said_tokens.h"

namespace {

using namespace pelton::gateway;

std::string relay(std::string_view wire, size_t step) {
  AnswerReader reader;
  SaidTokens said;
  std::string relayed;
  bool over = false;
  for (size_t at = 0; at < wire.size(); at += step) {
    reader.push(wire.substr(at, step));
    for (;;) {
      auto update = reader.next();
      if (!update.ok()) return relayed + "!";
      if (!*update) break;
      CHECK(!over, "an update behind the end");
      over = (*update)->last || (*update)->error.has_value();
      relayed += (*update)->bytes;
      for (auto& [choice, list] : (*update)->tokens) {
        if (choice == 0 && !said.add(std::move(list)).ok()) relayed += "?";
      }
      relayed += std::to_string(said.count());
    }
  }
  return relayed;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view wire(reinterpret_cast<const char*>(data) + 1, size - 1);
  CHECK(relay(wire, 1 + data[0] % 16) == relay(wire, wire.size() + 1));
  return 0;
}
