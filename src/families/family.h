// A model family: how its config.json reads, what its tensors are called in other containers, and
// whether this engine computes it. A family is one file with one such constant, and a line in
// registry.cc; docs/add_a_model_family.md goes through it. Constants; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "families/config_fields.h"
#include "families/model_config.h"

namespace pelton::families {

// A name elsewhere, and here: Hugging Face's.
struct NamePair {
  std::string_view foreign;
  std::string_view ours;
};

// A whole number in a GGUF file's metadata. `gguf` stands behind the architecture and a dot, unless
// it is global ("tokenizer.ggml.eos_token_id").
struct GgufInteger {
  std::string_view gguf;
  std::string_view config;
  bool required = false;
};

// What a GGUF file does not say and config.json does.
struct GgufFlag {
  std::string_view config;
  bool value;
};

// How llama.cpp's converter writes the family. What a file does not say stands in `defaults`.
struct GgufNames {
  std::string_view architecture;         // "gpt-oss": general.architecture, and the keys' prefix
  std::span<const NamePair> layer;       // "attn_q.weight" -> "self_attn.q_proj.weight"
  std::span<const GgufInteger> numbers;  // beside those that all families have
  std::span<const GgufFlag> flags = {};
  std::span<const NamePair> reals = {};      // numbers that are not whole, behind the architecture
  std::span<const NamePair> booleans = {};   // likewise
  void (*complete)(Json& config) = nullptr;  // what follows from what the file says; or null
  void (*prepare)(Json& config) = nullptr;   // the reverse, ahead of writing; or null
  double rope_theta = 10000.0;
  bool turns_neighbours =
      false;                 // rows of q and k lie so that elements 2i and 2i + 1 turn together
  bool has_experts = false;  // of families of one architecture, the one with experts
  bool has_window = false;   // or the one whose layers slide
  int expert_gating = 0;     // or the one whose expert_gating_func is this; 0: there is none other
  bool yarn_truncate = true;
  double yarn_factor = 1.0;
  double yarn_original_context = 0;  // 0: the context length
};

// How published files hold a layer's experts; of either there are re-uploads with all experts in
// one matrix (WeightLayout::kBf16Experts, kFusedExperts).
enum class ExpertFiles : uint8_t {
  kMxfp4,  // blocks and scales of all experts (gpt-oss)
  kApart,  // three matrices for each expert
};

// Other names under which configurations of a family come: of a model with other modalities too,
// which has the text's under "text_config", or of a descendant.
struct FamilyAlias {
  std::string_view architecture;
  std::string_view model_type;
};

// config.json of a published model, every key: published_config.h.
struct PublishedConfig {
  std::string_view name;  // "qwen3-0.6b"
  Json (*config)();
};

struct Family {
  std::string_view architecture;  // in config.json's `architectures`
  std::string_view model_type;
  // Reads what is the family's own into `config`, of which parse_model_config has filled nothing
  // but the names. Errors: kBadCheckpoint, kUnsupported naming the key.
  Result<void> (*read)(const ConfigFields& fields, ModelConfig& config) = nullptr;
  std::string_view defaults = "{}";  // JSON: what its files leave out
  // Vectors and matrices may be of any plain type (float32, float16, bf16); or bf16 exactly.
  bool any_plain_type = true;
  ExpertFiles expert_files = ExpertFiles::kApart;
  // What tensors behind "model.layers.N." are called in its files, where that is not what
  // expected_tensors calls them; "*" stands for a number in both.
  std::span<const NamePair> layer_names = {};
  std::span<const FamilyAlias> aliases = {};
  const GgufNames* gguf = nullptr;                  // null: they are refused by name
  std::span<const PublishedConfig> published = {};  // what pelton synth --like makes
};

}  // namespace pelton::families
