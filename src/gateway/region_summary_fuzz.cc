// Any bytes as another region's summary: refused and nothing changed, or numbers within bounds.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "gateway/region_summary.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::gateway;  // NOLINT: a program of one file
  const std::string text(reinterpret_cast<const char*>(data), size);
  RegionBook book("us", "b");
  book.set({{"a", {.ready = 1, .slots = 8}}});
  RegionView view;
  CHECK(view.apply(book.summary("", 0), "us").ok());
  const RegionModels before = view.models();
  if (!view.apply(text, "us").ok()) {
    CHECK(view.models() == before);
    return 0;
  }
  for (const auto& [name, model] : view.models()) {
    CHECK(!name.empty() && model.ready >= 0 && model.slots >= 0 && model.running >= 0);
    CHECK(model.kv_used >= 0 && model.kv_used <= 1 && model.wait_s >= 0);
  }
  return 0;
}
