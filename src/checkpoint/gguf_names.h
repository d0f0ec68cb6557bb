// How the tensors and keys of a GGUF file, as llama.cpp's converter writes it, are called here, by
// the family's names (families/family.h). gpt-oss' experts keep GGUF's split into gate and up:
//   blk.N.ffn_gate_exps.weight -> model.layers.N.mlp.experts.gate_exps, .bias -> gate_exps_bias
// and so for up_exps, down_exps and the fused gate_up_exps. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/gguf.h"
#include "families/registry.h"

namespace pelton::checkpoint {

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight" and back; empty if unknown.
std::string name_from_gguf(const families::Family& family, std::string_view gguf_name);
std::string name_to_gguf(const families::Family& family, std::string_view name);

// Whose file it is. kUnsupported names those that are known; Ollama's "gptoss" is distinguished.
Result<const families::Family*> gguf_family(
    const GgufMetadata& metadata,
    const families::Registry& registry = families::Registry::built_in());

struct GgufTensorFacts {
  int64_t vocab_size = 0;           // rows of the embedding
  bool has_head = true;             // there is an output.weight
  bool has_mlp_bias = false;        // there are ffn_up.bias and its like
  bool has_attention_bias = false;  // there is an attn_output.bias, and so the others'
};
// The metadata as a config.json would say it, to be read by parse_model_config. What GGUF does not
// say is as the family publishes it. Errors: kBadCheckpoint naming the key.
Result<Json> config_from_gguf(const families::Family& family, const GgufMetadata& metadata,
                              const GgufTensorFacts& tensors);

// The reverse: everything but tokenizer and tensors.
void config_to_gguf(const families::Family& family, const Json& config, GgufHeader& header);

// GGUF's key for a key of config.json, for messages; empty if there is none.
std::string gguf_key_of(const families::Family& family, std::string_view config_key);

}  // namespace pelton::checkpoint
