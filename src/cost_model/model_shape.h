// A model's shape as far as bytes and operations depend on it: gpt-oss, the Llama family (Mistral,
// Mixtral, Qwen 2 and 3 with and without experts) and DeepSeek's latent attention, from a
// config.json. More models can be planned than the engine runs. Keys and values are counted layer
// by layer, each layer by the rule of its own kind of attention. Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace pelton::cost_model {

enum class AttentionKind {
  kFull,     // keys and values of every token, for each kv head
  kSliding,  // the same for the last `window` tokens
  kLatent,   // one compressed row of every token, for all heads together (MLA)
};

struct LayerShape {
  AttentionKind attention = AttentionKind::kFull;
  bool has_experts = false;
};

// Of multi-head latent attention.
struct LatentShape {
  int64_t q_rank = 0;  // 0: queries are not compressed
  int64_t kv_rank = 0;
  int64_t nope_size = 0;  // of a head, without position
  int64_t rope_size = 0;  // shared by all heads, with position
  int64_t value_size = 0;
};

struct ModelShape {
  std::string name;
  std::string model_type;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  LatentShape latent;
  std::vector<LayerShape> layers;
  int64_t window = 0;
  int64_t intermediate = 0;         // of layers without experts
  int64_t expert_intermediate = 0;  // of one expert
  int64_t experts = 0;
  int64_t experts_per_token = 0;
  int64_t shared_experts = 0;  // that every token goes through
  int64_t vocab = 0;
  int64_t context_max = 0;
  bool tied_embedding = false;
  bool attention_bias = false;  // of q, k, v and o
  bool qkv_bias = false;        // of q, k and v alone
  bool expert_bias = false;     // and of the router
  bool sinks = false;           // one a head
  bool qk_norm = false;
  bool router_correction = false;
  double expert_bits = 16;  // with their scales: MXFP4 is 4.25
  double other_bits = 16;
  int64_t nominal_parameters = 0;  // as the model is called ("405B"); 0: not said

  // Of keys and values of one token in one layer, in elements: the plug-in point for architectures.
  int64_t kv_elements(AttentionKind kind) const;
  int64_t layer_count() const { return static_cast<int64_t>(layers.size()); }
  int64_t count(AttentionKind kind) const;
  int64_t expert_layers() const;
  // How many of its tokens a layer of this kind holds for a sequence of `tokens`.
  int64_t tokens_held(AttentionKind kind, int64_t tokens) const;
  // Of one sequence, whole tokens and nothing for rounding.
  double kv_bytes(int64_t tokens, double element_bytes) const;
};

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
  int64_t active(const ModelShape& shape) const;
};
ParameterCount count_parameters(const ModelShape& shape);

double weight_bytes(const ModelShape& shape);

// `origin` names it in errors. kBadCheckpoint: a key is missing or out of range; kUnsupported: an
// architecture whose formulas we do not know.
Result<ModelShape> parse_model_shape(const Json& config, const std::string& origin);

// gpt-oss-20b, gpt-oss-120b, llama-3.1-8b, llama-3.1-405b, deepseek-v3; a config.json, or a folder
// that has one.
Result<ModelShape> find_model_shape(const std::string& model);
bool is_known_shape(const std::string& model);

}  // namespace pelton::cost_model
