// Any text as config.json, with itself as generation_config.json: numbers in range, or an Error.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "checkpoint/describe.h"
#include "checkpoint/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const Result<Json> json = Json::parse({reinterpret_cast<const char*>(data), size});
  if (!json.ok()) return 0;
  const Result<checkpoint::ModelConfig> config =
      checkpoint::parse_model_config(*json, &json.value(), "fuzz");
  if (!config.ok()) {
    CHECK(config.error().message.size() < 1000);
    return 0;
  }
  CHECK(config->layer_is_sliding.size() == static_cast<size_t>(config->layer_count));
  const checkpoint::WeightCounts counts = checkpoint::count_weights(*config);
  CHECK(counts.parameters > 0 && counts.total_bytes > 0);
  CHECK(counts.active_parameters <= counts.parameters);
  return 0;
}
