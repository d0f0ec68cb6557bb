// A model's shape, read from config.json and generation_config.json and checked: every number here
// is in range, and every product of two of them fits in 63 bits.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/token_id.h"

namespace pelton::checkpoint {

struct YarnConfig {
  double factor = 1.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double original_context = 4096;
  bool truncate = false;  // round the ramp's bounds (gpt-oss: no)
};

struct ModelConfig {
  std::string architecture;  // "GptOssForCausalLM"
  std::string model_type;    // "gpt_oss"
  int layer_count = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int head_count = 0;
  int kv_head_count = 0;
  int head_size = 0;
  int expert_count = 0;
  int experts_per_token = 0;
  int vocab_size = 0;
  int sliding_window = 0;              // a query sees this many keys, itself included
  std::vector<bool> layer_is_sliding;  // one a layer
  int context_max = 0;                 // max_position_embeddings
  double rms_norm_epsilon = 1e-5;
  double rope_theta = 150000.0;
  YarnConfig yarn;
  double swiglu_limit = 7.0;
  double swiglu_alpha = 1.702;
  std::vector<TokenId> eos_tokens;  // union of config.json's and generation_config.json's
};

// `file` names the origin in errors. generation may be null. Errors: kBadCheckpoint, kUnsupported.
Result<ModelConfig> parse_model_config(const Json& config, const Json* generation,
                                       const std::string& file);

// Reads FOLDER/config.json and, if there, generation_config.json.
Result<ModelConfig> read_model_config(const std::string& folder);

// `folder`'s config.json in Hugging Face's words, whichever of the two layouts it is in.
Result<Json> read_config_json(const std::string& folder);

}  // namespace pelton::checkpoint
