// What a model's parameters, keys and values come to, counted from its configuration: for planning,
// more models than the engine runs. Keys and values are counted layer by layer, each layer by the
// rule of its own kind of attention. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "families/model_config.h"

namespace pelton::cost_model {

// Parameters by what they are for; of all layers together.
struct ParameterCount {
  int64_t embedding = 0;
  int64_t attention = 0;
  int64_t experts = 0;  // of all experts
  int64_t expert = 0;   // of one expert of one layer
  int64_t dense = 0;    // feed-forward of layers without experts, and shared experts
  int64_t head = 0;
  int64_t other = 0;  // norms and routers

  int64_t total() const { return embedding + attention + experts + dense + head + other; }
  // That one token is multiplied with.
  int64_t active(const families::ModelConfig& config) const;
};
ParameterCount count_parameters(const families::ModelConfig& config);

// As published: `expert_bits` and `other_bits`.
double weight_bytes(const families::ModelConfig& config);

// Of keys and values of one token in one layer, in elements.
int64_t kv_elements(const families::ModelConfig& config, families::AttentionKind kind);
// Of one sequence, whole tokens and nothing for rounding.
double kv_bytes(const families::ModelConfig& config, int64_t tokens, double element_bytes);

// gpt-oss-20b, gpt-oss-120b, qwen3-0.6b, llama-3.1-8b, llama-3.1-405b, deepseek-v3; a config.json,
// or a folder that has one. Errors: kNotFound, kBadCheckpoint (a key is missing or out of range),
// kUnsupported (an architecture whose formulas we do not know).
Result<families::ModelConfig> find_model_config(const std::string& model);
bool is_known_model(const std::string& model);

}  // namespace pelton::cost_model
