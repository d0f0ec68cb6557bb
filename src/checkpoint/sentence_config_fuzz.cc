// Any JSON as a pooling's or as prompts': an error, or a pooling that has a name and prompts that
// are bounded.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "checkpoint/sentence_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const Result<Json> json = Json::parse({reinterpret_cast<const char*>(data), size});
  if (!json.ok()) return 0;
  const auto pooling = checkpoint::parse_pooling(*json, "config.json");
  if (pooling.ok()) CHECK(!checkpoint::pooling_name(*pooling).empty());
  checkpoint::SentenceConfig config;
  if (!checkpoint::parse_prompts(*json, "prompts.json", config).ok()) return 0;
  CHECK(config.prompts.size() <= 256);
  CHECK(config.default_prompt.empty() || config.prompt(config.default_prompt) != nullptr);
  return 0;
}
