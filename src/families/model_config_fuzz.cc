// Any text as config.json, with itself as generation_config.json: numbers in range, or an Error.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "families/expected_tensors.h"
#include "families/mistral_original.h"
#include "families/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const Result<Json> json = Json::parse({reinterpret_cast<const char*>(data), size});
  if (!json.ok()) return 0;
  if (json->is_object()) {
    const Result<Json> own = families::config_from_mistral(*json, "fuzz");
    if (own.ok()) static_cast<void>(families::parse_model_config(*own, nullptr, "fuzz"));
  }
  const Result<families::ModelConfig> config =
      families::parse_model_config(*json, &json.value(), "fuzz");
  if (!config.ok()) {
    CHECK(config.error().message.size() < 1000);
    return 0;
  }
  CHECK(config->layer_count() > 0 && config->head_size > 0);
  int64_t parameters = 0;
  int64_t bytes = 0;
  for (const families::ExpectedTensor& tensor :
       families::expected_tensors(*config, families::WeightLayout::kPublished)) {
    parameters += tensor.parameters();
    bytes += tensor.bytes();
  }
  CHECK(parameters > 0 && bytes > 0);
  return 0;
}
