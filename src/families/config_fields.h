// Reads the members of a config.json and says by name what is missing or out of range. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace pelton::families {

struct ModelConfig;

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

 private:
  const Json& json_;
  const std::string file_;
  const std::string prefix_;
};

// What most families' files share. Each fills the fields of the same names.

// num_hidden_layers layers of full attention, without experts; hidden_size, heads, vocab_size,
// max_position_embeddings. head_dim where it is missing: hidden_size / num_attention_heads.
Result<void> read_sizes(const ConfigFields& fields, ModelConfig& config);
// layer_types, if there: "sliding_attention" and "full_attention".
Result<void> read_layer_types(const ConfigFields& fields, ModelConfig& config);
// rope_theta and rope_scaling, or transformers 5's rope_parameters, which holds both. `config.rope`
// holds the family's defaults.
Result<void> read_rope(const ConfigFields& fields, ModelConfig& config);
Result<void> add_eos_tokens(const ConfigFields& fields, ModelConfig& config);

}  // namespace pelton::families
