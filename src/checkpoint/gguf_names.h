// How the tensors and keys of a gpt-oss GGUF file (architecture "gpt-oss", as llama.cpp's converter
// writes it) are called here. Experts keep GGUF's split into gate and up:
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

namespace pelton::checkpoint {

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight" and back; empty if unknown.
std::string name_from_gguf(std::string_view gguf_name);
std::string name_to_gguf(std::string_view name);

// kUnsupported unless the file is a gpt-oss of llama.cpp's; Ollama's "gptoss" is told apart.
Result<void> check_gguf_architecture(const GgufMetadata& metadata);

// The metadata as a config.json would say it, to be read by parse_model_config. What GGUF does not
// say is as published: windows on even layers, swiglu 1.702 and 7, YaRN betas 32 and 1, no
// rounding. `vocab_size`: rows of the embedding. Errors: kBadCheckpoint naming the key.
Result<Json> config_from_gguf(const GgufMetadata& metadata, int64_t vocab_size);

// The reverse: everything but tokenizer and tensors.
void config_to_gguf(const Json& config, GgufHeader& header);

// GGUF's key for a key of config.json, for messages; empty if there is none.
std::string_view gguf_key_of(std::string_view config_key);

}  // namespace pelton::checkpoint
