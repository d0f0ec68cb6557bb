// Any text as the config.json of Medusa heads: heads that fit the target, or an Error.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "speculative/medusa_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const Result<Json> json = Json::parse({reinterpret_cast<const char*>(data), size});
  if (!json.ok()) return 0;
  families::ModelConfig target;
  target.hidden_size = 128;
  target.vocab_size = 512;
  const Result<speculative::MedusaConfig> config =
      speculative::parse_medusa_config(*json, target, "fuzz");
  if (!config.ok()) {
    CHECK(config.error().message.size() < 1000);
    return 0;
  }
  CHECK(speculative::medusa_head_count(*json, "fuzz").value() == config->heads);
  CHECK(config->heads >= 1 && config->heads <= 64 && config->blocks >= 1 && config->blocks <= 16);
  CHECK(config->draft_vocab_size >= 1 && config->draft_vocab_size <= 512);
  return 0;
}
