#include "speculative/random_medusa.h"

#include <fmt/format.h>

#include "speculative/medusa_config.h"
#include "speculative/random_tensors.h"

namespace pelton::speculative {
namespace {

constexpr int kHeads = 3;

// Ascending ids, spread over the target's vocabulary.
std::vector<int64_t> token_map(const MedusaConfig& config) {
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < config.draft_vocab_size; ++id) {
    ids.push_back(id * config.vocab_size / config.draft_vocab_size);
  }
  return ids;
}

}  // namespace

Json random_medusa_config(const Json& target) {
  Json config;
  config.set("architectures", Json::Array{Json("MedusaModel")}).set("model_type", "medusa");
  for (const char* key : {"hidden_size", "vocab_size"}) {
    if (const Json* value = target.find(key)) config.set(key, *value);
  }
  config.set("medusa_num_heads", kHeads).set("medusa_num_layers", 1).set("shared_lm_head", true);
  return config;
}

Result<void> write_random_medusa(const Json& json, const families::ModelConfig& target,
                                 uint64_t seed, const std::string& folder) {
  TRY_ASSIGN(const MedusaConfig config, parse_medusa_config(json, target, folder + "/config.json"));
  RandomTensors tensors;
  for (int head = 0; head < config.heads; ++head) {
    for (int block = 0; block < config.blocks; ++block) {
      const std::string name = fmt::format("{}.{}.linear", head, block);
      tensors.matrix(name, config.hidden_size, config.hidden_size, 0.9);
      if (config.bias != MedusaConfig::Bias::kNone) {
        tensors.vector(name + ".bias", config.hidden_size, 0.3, 0.0);
      }
    }
    if (config.output != MedusaConfig::Output::kOwn) continue;
    tensors.matrix(fmt::format("{}.{}", head, config.blocks), config.draft_vocab_size,
                   config.hidden_size, 2.0);
  }
  if (config.output == MedusaConfig::Output::kOne) {
    tensors.matrix("lm_head", config.draft_vocab_size, config.hidden_size, 2.0);
  }
  if (config.draft_vocab_size < config.vocab_size) {
    tensors.numbers("token_map", token_map(config));
  }
  return tensors.write(json, seed, folder);
}

}  // namespace pelton::speculative
