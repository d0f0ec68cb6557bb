// What an EAGLE-3 head is (Li et al. 2025, arXiv 2503.01840), read from its config.json as
// SpecForge and NVIDIA publish them, and checked against the target. A plain value; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "families/model_config.h"

namespace pelton::speculative {

struct Eagle3Config {
  // Its one decoder layer in the words of a model: hidden_size (the target's), heads, rope,
  // intermediate_size, rms_norm_epsilon, vocab_size (the target's).
  families::ModelConfig layer;
  int draft_vocab_size = 0;  // rows of its output head
  // Boundaries in the target's stack: k is the residual stream behind k layers (0: the embedding).
  // As NVIDIA's heads, vLLM, llama.cpp and SGLang for gpt-oss count; a head trained by SpecForge
  // names the layer whose output it means, one less: its file has to be changed.
  std::vector<int> taps;

  bool attention_bias = false;
  bool norm_before_fc = false;        // one RMS norm over the three taps together
  bool fc_norm = false;               // one over each of them
  bool norm_before_residual = false;  // the layer adds to the normed feature, not to the feature
  bool norm_output = false;           // the next feature is the normed output

  // Whether it turns queries and keys as the target does; one that does not loses its context
  // beyond what it was trained on.
  bool turns_as_target = true;
};

inline constexpr int kEagle3Taps = 3;

// Whether config.json says that it is one.
bool is_eagle3_config(const Json& config);

// `file` names the origin in errors. Errors: kBadCheckpoint, kUnsupported, naming the key; other
// sizes than the target's, taps beyond its layers, kInvalidArgument.
Result<Eagle3Config> parse_eagle3_config(const Json& config, const families::ModelConfig& target,
                                         const std::string& file);

}  // namespace pelton::speculative
