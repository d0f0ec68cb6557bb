// Mixtral: Mistral with experts, of which the softmax over the best two logits is the weight.
#include "families/gguf_tables.h"
#include "families/published_config.h"

namespace pelton::families {
namespace {

Result<void> read(const ConfigFields& fields, ModelConfig& config) {
  // What transformers' MixtralConfig has where the file says nothing.
  config.rope.theta = 1e6;
  TRY(read_decoder(fields, config));
  TRY_ASSIGN(config.rms_norm_epsilon, fields.number("rms_norm_eps", 1e-5, 0.0, 1.0));
  TRY(read_experts(fields, "num_local_experts", "intermediate_size", config));
  config.intermediate_size = 0;
  for (LayerConfig& layer : config.layers) {
    layer = {.attention = AttentionKind::kSliding, .has_experts = true};
  }
  // The softmax over all, the chosen ones' shares divided by their sum.
  config.router = {.kind = RouterKind::kSoftmaxOfTopK};
  return read_sliding_window(fields, config);
}

constexpr NamePair kLayerNames[] = {
    {"block_sparse_moe.gate.weight", "mlp.router.weight"},
    {"block_sparse_moe.experts.*.w1.weight", "mlp.experts.*.gate_proj.weight"},
    {"block_sparse_moe.experts.*.w2.weight", "mlp.experts.*.down_proj.weight"},
    {"block_sparse_moe.experts.*.w3.weight", "mlp.experts.*.up_proj.weight"},
    {"mlp.gate.weight", "mlp.router.weight"},  // as transformers 5 writes it
};

constexpr GgufInteger kGgufNumbers[] = {
    {"feed_forward_length", "intermediate_size", true},
    {"expert_count", "num_local_experts", true},
    {"expert_used_count", "num_experts_per_tok", true},
    {"attention.sliding_window", "sliding_window"},
};

// Llama's architecture, with experts.
constexpr GgufNames kGguf{.architecture = "llama",
                          .layer = kGgufDecoderTensors,
                          .numbers = kGgufNumbers,
                          .turns_neighbours = true,
                          .has_experts = true};

Json mixtral_8x7b() {
  Json config = published_decoder(
      {"MixtralForCausalLM", "mixtral", 32, 4096, 32, 8, 14336, 32000, 32768, 1e6, 1e-05});
  config.set("bos_token_id", 1).set("eos_token_id", 2).set("sliding_window", nullptr);
  config.set("num_experts_per_tok", 2).set("num_local_experts", 8);
  config.set("output_router_logits", false).set("router_aux_loss_coef", 0.02);
  return config;
}

constexpr PublishedConfig kPublished[] = {{"mixtral-8x7b", mixtral_8x7b}};

}  // namespace

extern const Family kMixtral{.architecture = "MixtralForCausalLM",
                             .model_type = "mixtral",
                             .read = read,
                             .layer_names = kLayerNames,
                             .gguf = &kGguf,
                             .published = kPublished};

}  // namespace pelton::families
