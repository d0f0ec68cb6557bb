// Any text is demands between nothing and all, or is refused.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "gateway/limit_split.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::gateway;
  const auto demands =
      decode_limit_demands(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!demands.ok()) return 0;
  for (const auto& [account, demand] : *demands) {
    CHECK(demand >= 0 && demand <= 1);
    const double share = limit_share({{"a", *demands}, {"b", {}}}, "a", account);
    CHECK(share > 0 && share <= 1);
  }
  return 0;
}
