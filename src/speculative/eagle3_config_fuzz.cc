// Any text as an EAGLE-3 head's config.json: a head that fits the target, or an Error.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "speculative/eagle3_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const Result<Json> json = Json::parse({reinterpret_cast<const char*>(data), size});
  if (!json.ok()) return 0;
  families::ModelConfig target;
  target.hidden_size = 128;
  target.vocab_size = 512;
  target.layers.resize(8);
  const Result<speculative::Eagle3Config> config =
      speculative::parse_eagle3_config(*json, target, "fuzz");
  if (!config.ok()) {
    CHECK(config.error().message.size() < 1000);
    return 0;
  }
  CHECK(config->layer.hidden_size == 128 && config->draft_vocab_size <= 512);
  CHECK(config->taps.size() == speculative::kEagle3Taps);
  for (const int tap : config->taps) CHECK(tap >= 0 && tap <= 8);
  CHECK(config->layer.q_size() > 0 && config->layer.intermediate_size > 0);
  return 0;
}
