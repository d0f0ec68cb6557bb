// Workload files are foreign bytes: an Error at worst, and never more than a small set is made.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "workload/spec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<Json> json = Json::parse(text);
  if (!json.ok()) return 0;
  Result<workload::WorkloadSpec> spec = workload::parse_spec(*json, "fuzz");
  if (!spec.ok() || !spec->file.empty()) return 0;
  // What it would make may be large by right; the parser is what is tried here.
  spec->count = 2;
  spec->lengths.input_tokens %= 100;
  spec->lengths.prefix_tokens %= 100;
  spec->prefixes.prefix_tokens %= 100;
  spec->prefixes.suffix_tokens %= 100;
  spec->turns.count %= 10;
  (void)workload::make_workload(*spec, workload::ids_vocabulary(10));
  return 0;
}
