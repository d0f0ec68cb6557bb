// Reads the members of a config.json and says by name what is missing or out of range. Pure.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace pelton::families {

struct ModelConfig;
struct RopeConfig;

// Beyond every model that exists, and small enough that the largest product of the sizes (elements
// of all experts of all layers: 2^10 * 2^12 * 2^21 * 2^16) fits in 63 bits.
inline constexpr int64_t kLayersMax = 1 << 10;
inline constexpr int64_t kExpertsMax = 1 << 12;
inline constexpr int64_t kHiddenMax = 1 << 16;
inline constexpr int64_t kIntermediateMax = 1 << 20;
inline constexpr int64_t kHeadsMax = 1 << 10;
inline constexpr int64_t kHeadSizeMax = 1 << 10;
inline constexpr int64_t kVocabMax = 1 << 22;
inline constexpr int64_t kContextMax = 1 << 24;

// A JSON value in a message: as it is written, but short.
std::string shown(const Json& value);

class ConfigFields {
 public:
  // `file` and `prefix` ("rope_scaling.") name a member in errors. `json` outlives the fields.
  ConfigFields(const Json& json, std::string file, std::string prefix = "");

  Error bad(std::string_view key, const std::string& what) const;          // kBadCheckpoint
  Error unsupported(std::string_view key, const std::string& what) const;  // kUnsupported

  // Null if absent or JSON null.
  const Json* find(std::string_view key) const;
  // There, and JSON null: where a family's own default stands for what is absent.
  bool is_null(std::string_view key) const;
  // kUnsupported where it is there and says something: null, false and what is empty do not.
  Result<void> not_set(std::string_view key) const;
  // The members of the object that `key` holds.
  ConfigFields inner(const Json& object, std::string_view key) const;

  struct Range {
    int64_t min;
    int64_t max;
  };
  Result<int> integer(std::string_view key, Range range) const;
  Result<int> integer_or(std::string_view key, int fallback, Range range) const;
  // `alias` is another name of the same number; if both are there they must agree.
  Result<int> integer_or_alias(std::string_view key, std::string_view alias, Range range) const;
  Result<double> number(std::string_view key, double fallback, double min, double max) const;
  Result<bool> boolean(std::string_view key, bool fallback) const;
  // kUnsupported if the member is there and has another value.
  Result<void> only(std::string_view key, const Json& supported) const;

  // kUnsupported if a member that nobody has asked for looks as if it changed arithmetic (a scale,
  // a cap, an activation, a window, ...) and does not say that it does not (null, false, 1, empty);
  // or if it is the epsilon of a norm under another name than the only one that is read.
  Result<void> refuse_unread_arithmetic() const;

 private:
  const Json& json_;
  const std::string file_;
  const std::string prefix_;
  mutable std::set<std::string, std::less<>> read_;  // keys that somebody has asked for
};

// What most families' files share. Each fills the fields of the same names.

// num_hidden_layers layers of full attention, without experts; hidden_size, heads, vocab_size,
// max_position_embeddings. head_dim where it is missing: hidden_size / num_attention_heads; not
// looked at where the family has set config.head_size before.
Result<void> read_sizes(const ConfigFields& fields, ModelConfig& config);
// layer_types, if there: "sliding_attention" and "full_attention".
Result<void> read_layer_types(const ConfigFields& fields, ModelConfig& config);
// rope_theta and rope_scaling, or transformers 5's rope_parameters, which holds both. `config.rope`
// holds the family's defaults.
Result<void> read_rope(const ConfigFields& fields, ModelConfig& config);
// One rope of the members of `scaling`: "rope_type" (absent: not scaled), its factors, perhaps
// "rope_theta".
Result<void> read_rope_scaling(const ConfigFields& scaling, int context_max, RopeConfig& rope);
// quantization_config: none, or FP8 with scales of blocks, rows or whole tensors.
Result<void> read_quantization(const ConfigFields& fields, ModelConfig& config);
// All that Llama's descendants say alike: read_sizes, intermediate_size, silu, read_rope,
// rms_norm_eps (1e-6 if absent), tie_word_embeddings, read_quantization.
Result<void> read_decoder(const ConfigFields& fields, ModelConfig& config);
// attention_bias: one key for all four products of attention.
Result<void> read_attention_bias(const ConfigFields& fields, ModelConfig& config);
// num_experts_per_tok of as many experts as `count_key` says, of this width.
Result<void> read_experts(const ConfigFields& fields, const char* count_key, const char* width_key,
                          ModelConfig& config);
// sliding_window, or null; absent: `unsaid` (0: as null). `config.layers` says which layers slide,
// which changes nothing if null.
Result<void> read_sliding_window(const ConfigFields& fields, ModelConfig& config, int unsaid = 0);
// Qwen's: sliding_window counts only where use_sliding_window is true, and then for the layers from
// max_window_layers on, or as layer_types says.
Result<void> read_upper_window(const ConfigFields& fields, ModelConfig& config);
Result<void> add_eos_tokens(const ConfigFields& fields, ModelConfig& config);

}  // namespace pelton::families
