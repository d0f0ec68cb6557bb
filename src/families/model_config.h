// What a model is, read from its config.json by its family and checked: every size is in range, and
// every product of two of them fits in 63 bits. The one description that files, layers, the cost
// model and devices are derived from. A plain value; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/token_id.h"

namespace pelton::families {

struct Family;

enum class AttentionKind : uint8_t {
  kFull,     // keys and values of every token, for each kv head
  kSliding,  // the same for the last `sliding_window` tokens, the query's own included
  kLatent,   // one compressed row of every token, for all heads together (MLA)
};

struct LayerConfig {
  AttentionKind attention = AttentionKind::kFull;
  bool has_experts = false;  // a mixture of experts instead of a dense MLP
};

// Rotary position embedding: the frequencies theta^(-2i/d) and how they are scaled for contexts
// beyond the one that the model was first trained with.
enum class RopeScaling : uint8_t {
  kNone,
  kLinear,  // every frequency / factor
  kLlama3,  // low frequencies / factor, high ones as they are, a ramp between the two
  kYarn,    // arXiv 2309.00071, "NTK by parts"
};

struct RopeConfig {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  double original_context = 0;  // kLlama3, kYarn: tokens
  // kLlama3: the ramp lies between these many turns within the original context.
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  // kYarn: the same, and what cosines and sines are multiplied with.
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;           // the ramp's bounds are rounded to whole pairs (gpt-oss: no)
  double attention_factor = 1.0;  // 0.1 ln(factor) + 1 unless the file says otherwise
};

// Of multi-head latent attention (arXiv 2405.04434, section 2.1).
struct LatentConfig {
  int q_rank = 0;  // 0: queries are not compressed
  int kv_rank = 0;
  int nope_size = 0;  // of a head, without position
  int rope_size = 0;  // shared by all heads, with position
  int value_size = 0;
};

// The gated linear unit between an MLP's two products (arXiv 2002.05202).
enum class Glu : uint8_t {
  kSwiglu,         // silu(gate) * up
  kClampedSwiglu,  // gpt-oss: gate * sigmoid(alpha * gate) * (up + 1), both clamped to `limit`
};

// How a router's logits become the weights of the experts chosen.
enum class RouterKind : uint8_t {
  kSoftmaxOfTopK,  // of the k largest logits (gpt-oss; the same as of all, then renormalised)
};

struct ModelConfig {
  std::string name;  // what reports call it: the file, or the published name
  const Family* family = nullptr;
  std::string architecture;  // "GptOssForCausalLM"
  std::string model_type;    // "gpt_oss"

  int hidden_size = 0;
  int vocab_size = 0;
  int context_max = 0;  // max_position_embeddings
  double rms_norm_epsilon = 1e-5;
  bool tied_head = false;  // the embedding is the output head
  std::vector<LayerConfig> layers;

  int head_count = 0;
  int kv_head_count = 0;
  int head_size = 0;
  int sliding_window = 0;      // of sliding layers, in tokens; 0 without any
  bool qkv_bias = false;       // of queries, keys and values
  bool attn_out_bias = false;  // of attention's output projection
  bool attention_sinks = false;
  bool qk_norm = false;  // an RMS norm over each head of q and k, before rotation
  LatentConfig latent;   // of layers with kLatent
  RopeConfig rope;

  int intermediate_size = 0;  // of a dense MLP; 0 without any
  Glu glu = Glu::kSwiglu;
  double swiglu_limit = 7.0;  // kClampedSwiglu
  double swiglu_alpha = 1.702;

  int expert_count = 0;  // 0: no layer has experts
  int experts_per_token = 0;
  int expert_intermediate_size = 0;
  int shared_expert_count = 0;     // that every token goes through
  bool expert_bias = false;        // of the experts' three products and of the router
  bool router_correction = false;  // a bias that counts for the choice alone
  RouterKind router = RouterKind::kSoftmaxOfTopK;

  // How weights are published, scales included (MXFP4: 4.25), and how many the model's name says.
  double expert_bits = 16;
  double other_bits = 16;
  int64_t nominal_parameters = 0;  // 0: it does not say

  // Where an answer ends: the union of config.json's and generation_config.json's.
  std::vector<TokenId> eos_tokens;

  int layer_count() const { return static_cast<int>(layers.size()); }
  bool is_sliding(int layer) const {
    return layers[static_cast<size_t>(layer)].attention == AttentionKind::kSliding;
  }
  int count(AttentionKind kind) const;
  int expert_layers() const;
  bool has_experts() const { return expert_count > 0; }
  int q_size() const { return head_count * head_size; }      // a token's queries, in elements
  int kv_size() const { return kv_head_count * head_size; }  // its keys; as many values
};

// `file` names the origin in errors. generation may be null. Errors: kBadCheckpoint, kUnsupported.
Result<ModelConfig> parse_model_config(const Json& config, const Json* generation,
                                       const std::string& file);

// The same of a model that is only counted and planned for, not computed: of more families, by
// model_type alone, and as lenient as counting allows.
Result<ModelConfig> parse_planned_config(const Json& config, const std::string& file);

}  // namespace pelton::families
