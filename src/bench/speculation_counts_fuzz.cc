// Any text as a page of metrics: counts that are numbers, or none.
#include <cstdint>

#include "base/check.h"
#include "bench/speculation_counts.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const auto counts = bench::parse_speculation({reinterpret_cast<const char*>(data), size});
  if (!counts) return 0;
  CHECK(counts->drafts >= 0 && counts->accepted_by_place.size() <= 64);
  CHECK(bench::speculation_text(*counts).empty() == (counts->drafts <= 0));
  return 0;
}
