// Foreign bytes as a file of recorded facts: each line is refused with a reason, or decided on.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "autoscaler/facts_log.h"
#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::autoscaler;
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  FactsReplay replay;
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    const auto outcome = replay.feed(bytes.substr(0, end));
    if (outcome.ok() && outcome->is_decision) CHECK(outcome->decision.desired >= 0);
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
  return 0;
}
