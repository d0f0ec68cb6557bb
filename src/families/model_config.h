// What a model is, read from its config.json by its family and checked: every size is in range, and
// every product of two of them fits in 63 bits. The one description that files, layers, the cost
// model and devices are derived from. A plain value; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
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
  // Each pair has a divisor of its own: of two lists the one for the model's whole context (Phi-3;
  // arXiv 2402.13753).
  kLongrope,
};

// Which two rotated dimensions of a head make a pair, of d (rotary_dim).
enum class RopePairs : uint8_t {
  kHalves,      // i and i + d/2
  kNeighbours,  // 2i and 2i + 1 (DeepSeek)
};

struct RopeConfig {
  double theta = 10000.0;
  RopePairs pairs = RopePairs::kHalves;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  double original_context = 0;  // kLlama3, kYarn: tokens
  // kLlama3: the ramp lies between these many turns within the original context.
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  // kYarn: the same, and what cosines and sines are multiplied with.
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;  // the ramp's bounds are rounded to whole pairs (gpt-oss: no)
  // kYarn: 0.1 ln(factor) + 1 unless the file says otherwise; kLongrope:
  // sqrt(1 + ln(factor) / ln(original_context)).
  double attention_factor = 1.0;
  double mscale_all_dim = 0;  // DeepSeek: scores grow by the square of such a factor
  // If there are any, of each pair: its frequency / divisor, whatever `scaling` says (GGUF files
  // hold llama3's as rope_freqs.weight). kLongrope's.
  std::vector<double> divisors;
};

// Of multi-head latent attention (arXiv 2405.04434, section 2.1).
struct LatentConfig {
  int q_rank = 0;  // 0: queries are not compressed
  int kv_rank = 0;
  int nope_size = 0;  // of a head, without position
  int rope_size = 0;  // shared by all heads, with position
  int value_size = 0;
  // Keys' and values' matrices apart (k_b_proj, v_b_proj), not in one (kv_b_proj): of each head
  // (kv_rank, nope_size), transposed, and (value_size, kv_rank). GGUF files of 2025 on.
  bool keys_transposed = false;
};

// The gated linear unit between an MLP's two products (arXiv 2002.05202).
enum class Glu : uint8_t {
  kSwiglu,         // silu(gate) * up
  kClampedSwiglu,  // gpt-oss: gate * sigmoid(alpha * gate) * (up + 1), both clamped to `limit`
  kGegluTanh,      // gelu(gate) * up, gelu by tanh (Gemma)
};

// How a router's logits become the experts chosen and their weights.
enum class RouterKind : uint8_t {
  kSoftmaxOfTopK,  // of the k largest logits (gpt-oss; the same as of all, then renormalised)
  kSoftmax,        // of all logits; the chosen ones' shares are their weights
  kSigmoid,        // of each logit by itself (DeepSeek V3)
};

struct RouterConfig {
  RouterKind kind = RouterKind::kSoftmaxOfTopK;
  bool normalises = false;  // weights / their sum
  double scale = 1.0;       // of the weights, last
  bool correction = false;  // a bias on the scores that counts for the choice alone
  // Experts lie in `groups` equal groups; only those of the best `groups_kept` are chosen from. A
  // group is as good as its best expert, or as its two best together.
  int groups = 1;
  int groups_kept = 1;
  bool group_by_two = false;
};

// How the matrices of a published file are stored, but for embedding, head and router.
enum class WeightQuantization : uint8_t {
  kNone,      // float32, float16 or bf16; gpt-oss' experts: MXFP4
  kF8Blocks,  // E4M3, a float32 scale for each block of 128 x 128 (DeepSeek V3)
  kF8Rows,    // E4M3, a scale for each row
  kF8Tensor,  // E4M3, one scale
  // Integers (layers/int_weights.h):
  kGptq,
  kAwq,
  kCompressedInts,  // compressed-tensors
};

struct IntWeights {
  int bits = 4;                  // or 8, but for AWQ
  int group_size = 128;          // inputs that share a scale and a zero point; 0: all
  bool symmetric = false;        // every zero point is in the middle
  bool zeros_minus_one = false;  // GPTQ's first format stores zero points less 1
  bool reordered = false;        // groups are of inputs in any order, which g_idx says (desc_act)
  bool in_bytes = false;         // compressed-tensors: int8 each, not in words
};

// Between an encoder's two products: of BERT's `hidden_act`.
enum class Activation : uint8_t {
  kGelu,      // x/2 (1 + erf(x / sqrt 2))
  kGeluTanh,  // its approximation by tanh ("gelu_new", "gelu_pytorch_tanh")
  kRelu,
};

// Of an encoder: post-norm layers in which every token of a text sees every other (BERT, arXiv
// 1810.04805). Its positions are learned rows of a table, and it has no cache.
struct EncoderConfig {
  int position_rows = 0;   // 0: the model is a decoder
  int first_position = 0;  // the row of a text's first token (RoBERTa: pad_token_id + 1)
  int type_rows = 0;       // token types: of a pair's first and second text
  double layer_norm_epsilon = 1e-12;
  Activation activation = Activation::kGelu;
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
  bool norm_adds_one = false;  // files hold w of norms that multiply with 1 + w (not GGUF: 1 + w)
  bool post_norms = false;     // a norm over what a block adds to the residual stream, too
  double embedding_scale = 1.0;
  double residual_scale = 1.0;  // of what a block adds to the residual stream, biases included
  double logit_scale = 1.0;     // of logits, ahead of the cap
  double logit_softcap = 0;     // c: c tanh(z / c) of each logit z; 0: none
  bool tied_head = false;       // the embedding is the output head
  std::vector<LayerConfig> layers;

  int head_count = 0;
  int kv_head_count = 0;
  int head_size = 0;
  int sliding_window = 0;      // of sliding layers, in tokens; 0 without any
  bool qkv_bias = false;       // of queries, keys and values
  bool attn_out_bias = false;  // of attention's output projection
  bool attention_sinks = false;
  bool qk_norm = false;          // an RMS norm over each head of q and k, before rotation
  double attention_scale = 0;    // of scores
  double attention_softcap = 0;  // as logit_softcap, of scaled scores
  LatentConfig latent;           // of layers with kLatent
  int rotary_part = 0;           // rotated dimensions of a head (rotary_dim), its first; 0: all
  RopeConfig rope;
  std::optional<RopeConfig> sliding_rope;  // of sliding layers, where theirs is another

  int intermediate_size = 0;  // of a dense MLP; 0 without any
  bool mlp_bias = false;      // of a dense MLP's three products
  Glu glu = Glu::kSwiglu;
  double swiglu_limit = 7.0;  // kClampedSwiglu
  double swiglu_alpha = 1.702;

  int expert_count = 0;  // 0: no layer has experts
  int experts_per_token = 0;
  int expert_intermediate_size = 0;
  int shared_expert_count = 0;  // that every token goes through
  bool expert_bias = false;     // of the experts' three products and of the router
  RouterConfig router;

  WeightQuantization quantization = WeightQuantization::kNone;
  IntWeights int_weights;  // of kGptq, kAwq, kCompressedInts
  EncoderConfig encoder;
  // A classification head in place of the output head: logits of so many labels, 0 without one; an
  // encoder's reads the first token's state, a decoder's the last one's.
  int label_count = 0;
  std::vector<std::string> labels;  // their names, where the file has them: as many, or none

  // Layers behind the last one that predict further tokens: drafts, which logits do not need.
  int draft_layer_count = 0;

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
  // Rotated dimensions of a head (rotary_dim).
  int rotary_size() const {
    if (is_latent()) return latent.rope_size;
    return rotary_part > 0 ? rotary_part : head_size;
  }
  // Of a dense layer's MLP, or of the experts that every token goes through.
  int widest_mlp() const {
    return std::max(intermediate_size, shared_expert_count * expert_intermediate_size);
  }
  bool is_encoder() const { return encoder.position_rows > 0; }
  bool is_latent() const { return latent.kv_rank > 0; }  // then all layers are
};

// `file` names the origin in errors. generation may be null. Errors: kBadCheckpoint, kUnsupported.
Result<ModelConfig> parse_model_config(const Json& config, const Json* generation,
                                       const std::string& file);

// The same of a model that is only counted and planned for, not computed: of more families, by
// model_type alone, and as lenient as counting allows.
Result<ModelConfig> parse_planned_config(const Json& config, const std::string& file);

}  // namespace pelton::families
