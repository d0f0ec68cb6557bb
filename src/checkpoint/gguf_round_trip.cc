#include "checkpoint/gguf_round_trip.h"

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "checkpoint/gguf_names.h"
#include "families/registry.h"

namespace pelton::checkpoint {
namespace {

using families::LayerConfig;
using families::ModelConfig;
using families::RopeConfig;

// Numbers are float32 in GGUF.
bool same(double a, double b) {
  return std::abs(a - b) <= 1e-6 * std::max(std::abs(a), std::abs(b));
}

bool same_layers(const ModelConfig& a, const ModelConfig& b) {
  if (a.layers.size() != b.layers.size()) return false;
  for (size_t i = 0; i < a.layers.size(); ++i) {
    if (a.layers[i].attention != b.layers[i].attention) return false;
  }
  return a.sliding_window == b.sliding_window;
}

bool same_experts(const ModelConfig& a, const ModelConfig& b) {
  for (size_t i = 0; i < a.layers.size(); ++i) {
    if (a.layers[i].has_experts != b.layers[i].has_experts) return false;
  }
  return a.expert_count == b.expert_count && a.experts_per_token == b.experts_per_token &&
         a.expert_intermediate_size == b.expert_intermediate_size &&
         a.intermediate_size == b.intermediate_size &&
         a.shared_expert_count == b.shared_expert_count;
}

bool same_router(const ModelConfig& a, const ModelConfig& b) {
  const families::RouterConfig& x = a.router;
  const families::RouterConfig& y = b.router;
  return x.kind == y.kind && x.normalises == y.normalises && same(x.scale, y.scale) &&
         x.correction == y.correction && x.groups == y.groups && x.groups_kept == y.groups_kept &&
         x.group_by_two == y.group_by_two;
}

// Llama 3's scaling lies in a tensor, which the metadata knows nothing of.
bool same_rope(const RopeConfig& a, const RopeConfig& b) {
  if (!same(a.theta, b.theta)) return false;
  if (a.scaling == families::RopeScaling::kLlama3) return true;
  if (a.scaling != b.scaling) return false;
  if (a.scaling == families::RopeScaling::kNone) return true;
  const bool is_yarn = a.scaling == families::RopeScaling::kYarn;
  return same(a.factor, b.factor) && same(a.attention_factor, b.attention_factor) &&
         a.divisors == b.divisors &&
         (!is_yarn ||
          (same(a.original_context, b.original_context) && same(a.beta_fast, b.beta_fast) &&
           same(a.beta_slow, b.beta_slow) && a.truncate == b.truncate));
}

bool same_sliding_rope(const ModelConfig& a, const ModelConfig& b) {
  if (a.sliding_rope.has_value() != b.sliding_rope.has_value()) return false;
  return !a.sliding_rope || same_rope(*a.sliding_rope, *b.sliding_rope);
}

bool same_scores(const ModelConfig& a, const ModelConfig& b) {
  return same(a.attention_scale, b.attention_scale) &&
         same(a.attention_softcap, b.attention_softcap) && same(a.logit_softcap, b.logit_softcap) &&
         same(a.embedding_scale, b.embedding_scale) && same(a.residual_scale, b.residual_scale) &&
         same(a.logit_scale, b.logit_scale);
}

bool same_heads(const ModelConfig& a, const ModelConfig& b) {
  return a.head_size == b.head_size && a.latent.nope_size == b.latent.nope_size &&
         a.latent.rope_size == b.latent.rope_size && a.latent.value_size == b.latent.value_size &&
         a.latent.q_rank == b.latent.q_rank && a.latent.kv_rank == b.latent.kv_rank;
}

bool same_biases(const ModelConfig& a, const ModelConfig& b) {
  return a.qkv_bias == b.qkv_bias && a.attn_out_bias == b.attn_out_bias && a.mlp_bias == b.mlp_bias;
}

// "": nothing is lost.
std::string_view lost(const ModelConfig& written, const ModelConfig& read) {
  if (!same_heads(written, read)) return "the sizes of its heads";
  if (!same_layers(written, read)) return "which of its layers slide";
  if (!same_experts(written, read)) return "which of its layers have experts, and how many";
  if (!same_router(written, read)) return "its router";
  if (!same_biases(written, read)) return "its biases";
  if (written.rotary_part != read.rotary_part) return "that a part of each head turns";
  if (!same_rope(written.rope, read.rope)) return "the scaling of its rotation";
  if (!same_sliding_rope(written, read)) return "the rotation of its sliding layers";
  if (!same_scores(written, read)) return "the scale or a cap of scores or logits";
  if (!same(written.rms_norm_epsilon, read.rms_norm_epsilon)) return "its rms_norm_eps";
  return "";
}

}  // namespace

Result<void> check_gguf_says_all(const Json& config_json, const ModelConfig& config,
                                 const GgufHeader& header) {
  const std::string bytes = header.bytes();
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  const auto accept = [](const GgufMetadata&) { return Result<void>(); };
  TRY_ASSIGN(const GgufFile file, parse_gguf({data, bytes.size()}, "the GGUF file", accept));
  TRY_ASSIGN(const families::Family* const family, gguf_family(file.metadata));
  TRY_ASSIGN(const Json said, config_from_gguf(*family, file.metadata,
                                               {.vocab_size = config.vocab_size,
                                                .has_head = !config.tied_head,
                                                .has_mlp_bias = config.mlp_bias,
                                                .has_attention_bias = config.attn_out_bias}));
  TRY_ASSIGN(const ModelConfig read, families::parse_model_config(said, nullptr, "the GGUF file"));
  const std::string_view what = lost(config, read);
  if (what.empty()) return {};
  return Error{ErrorCode::kUnsupported,
               fmt::format("a GGUF file of {} cannot say {}: it would be computed otherwise",
                           config_json.string("model_type").value_or(config.architecture), what)};
}

}  // namespace pelton::checkpoint
