// Any bytes as an adapter_config.json: ranks and scales in range for every path, and an answer to
// whether it may be adapted, or an Error.
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "lora/adapter_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<lora::AdapterConfig> config = lora::AdapterConfig::parse(text, "fuzz");
  if (!config.ok()) {
    const ErrorCode code = config.error().code;
    CHECK(code == ErrorCode::kBadCheckpoint || code == ErrorCode::kUnsupported);
    CHECK(config.error().message.size() < 1000);
    return 0;
  }
  const std::array<std::string, 2> paths = {"model.layers.0.mlp.experts.gate_up_projs.3",
                                            "model.layers.0.mlp.experts.gate_up_proj"};
  for (const bool is_parameter : {false, true}) {
    const auto contradiction = config->contradiction(paths, is_parameter);
    CHECK(contradiction.ok() || contradiction.error().message.size() < 1000);
  }
  const Result<lora::AdapterConfig::Scaling> scaling = config->scaling(paths);
  if (!scaling.ok()) return 0;
  CHECK(scaling->rank >= 1 && scaling->rank <= lora::kRankMax);
  CHECK(std::isfinite(scaling->scale) && scaling->scale >= 0);
  return 0;
}
