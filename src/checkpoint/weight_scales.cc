#include "checkpoint/weight_scales.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace pelton::checkpoint {

Normal weight_distribution(const families::ModelConfig& config, std::string_view name) {
  const auto root = [](double size) { return std::sqrt(std::max(size, 1.0)); };
  const double hidden = std::sqrt(static_cast<double>(config.hidden_size));
  const double heads =
      std::sqrt(static_cast<double>(int64_t{config.head_count} * config.head_size));
  const bool of_expert = name.find(".experts.") != std::string_view::npos;
  const int shared_inner = config.shared_expert_count * config.expert_intermediate_size;
  const bool of_shared = name.find(".shared_experts.") != std::string_view::npos;
  const double inner = std::sqrt(static_cast<double>(of_expert   ? config.expert_intermediate_size
                                                     : of_shared ? shared_inner
                                                                 : config.intermediate_size));
  const std::pair<std::string_view, Normal> table[] = {
      {"norm.weight", {0.1, config.norm_adds_one ? 0.0 : 1.0}},
      {"norm.bias", {0.1, 0.0}},
      {"o_proj.bias", {0.1, 0.0}},
      {"o_proj.weight", {1.2 / heads, 0.0}},
      {"q_proj.bias", {0.5, 0.0}},
      {"k_proj.bias", {0.5, 0.0}},
      {"v_proj.bias", {0.3, 0.0}},
      {"q_proj.weight", {0.9 / hidden, 0.0}},
      {"q_a_proj.weight", {1.0 / hidden, 0.0}},
      {"q_b_proj.weight", {1.0 / root(config.latent.q_rank), 0.0}},
      {"kv_a_proj_with_mqa.weight", {1.0 / hidden, 0.0}},
      {"kv_b_proj.weight", {1.0 / root(config.latent.kv_rank), 0.0}},
      {"k_proj.weight", {0.9 / hidden, 0.0}},
      {"v_proj.weight", {1.0 / hidden, 0.0}},
      {"sinks", {2.5, 4.0}},
      {"router.bias", {0.3, 0.0}},
      // Router logits of deviation 1.5: the biases do not decide, so choices spread over all
      // experts.
      {"router.weight", {1.5 / hidden, 0.0}},
      {"e_score_correction_bias", {0.05, 0.5}},
      // Dense: an MLP's output has rms about 1, as an expert's.
      {"gate_proj.weight", {1.5 / hidden, 0.0}},
      {"up_proj.weight", {1.5 / hidden, 0.0}},
      {"down_proj.weight", {0.7 / inner, 0.0}},
      {"gate_proj.bias", {0.3, 0.0}},
      {"up_proj.bias", {0.3, 0.0}},
      {"down_proj.bias", {0.2, 0.0}},
      {"gate_up_proj_bias", {0.5, 0.0}},
      {"down_proj_bias", {0.2, 0.0}},
      // Larger than what one layer adds, so that tokens stay distinct through many layers.
      {"embed_tokens.weight", {3.0, 0.0}},
      {"lm_head.weight", {2.5 / hidden, 0.0}},
      // Of encoders: beside the embedding, and the head of those with labels.
      {"embed_positions.weight", {1.0, 0.0}},
      {"embed_types.weight", {0.5, 0.0}},
      {"classifier.dense.weight", {1.0 / hidden, 0.0}},
      {"classifier.dense.bias", {0.2, 0.0}},
      {"classifier.out_proj.weight", {1.5 / hidden, 0.0}},
      {"classifier.out_proj.bias", {0.2, 0.0}},
      {"score.weight", {1.5 / hidden, 0.0}},  // of a decoder with labels
  };
  for (const auto& [suffix, normal] : table) {
    if (name.ends_with(suffix)) return normal;
  }
  CHECK(false, name);
}

Mxfp4Scale mxfp4_scale(const families::ModelConfig& config, std::string_view name) {
  const bool up = name.find("gate_up_proj") != std::string_view::npos;
  const double rms =
      up ? 3.0 / std::sqrt(static_cast<double>(config.hidden_size))
         : 1.0 / (6.5 * std::sqrt(static_cast<double>(config.expert_intermediate_size)));
  const double r = rms / std::sqrt(137.0 / 16.0);  // by the rms of uniform E2M1 codes
  const int exponent = static_cast<int>(std::floor(std::log2(r)));
  const double low = std::ldexp(1.0, 2 * exponent);
  return {.exponent = exponent + 127, .share_of_next = (r * r - low) / (4.0 * low - low)};
}

}  // namespace pelton::checkpoint
