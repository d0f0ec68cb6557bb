// What an adapter's adapter_config.json says, as PEFT writes it, checked: rank and alpha of every
// module, and the layers that it is for. What makes an adapter more than a sum of low rank is
// refused by its name. A plain value but for the patterns; one thread at a time.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/token_id.h"
#include "lora/module_patterns.h"
#include "lora/module_targets.h"

namespace pelton::lora {

inline constexpr int kRankMax = 4096;
inline constexpr size_t kConfigBytesMax = size_t{1} << 20;

class AdapterConfig {
 public:
  // `file` is for messages. Errors: kBadCheckpoint (no JSON, numbers that make no sense),
  // kUnsupported (well formed, and not something we do), each naming the field.
  static Result<AdapterConfig> parse(std::string_view text, const std::string& file);

  struct Scaling {
    int rank = 0;
    float scale = 1.0f;  // alpha / rank, or alpha / sqrt(rank) with use_rslora
  };
  // Of the module that has these paths: its own in the model, and for an expert's also that of the
  // parameter that holds all experts. Errors: kBadCheckpoint.
  Result<Scaling> scaling(std::span<const std::string> paths) const;

  // That the base, of so many layers, has all of layers_to_transform. Errors: kBadCheckpoint.
  Result<void> check_layers(int count) const;
  // ModuleTargets', of its fields. Errors: kBadCheckpoint.
  Result<std::optional<std::string>> contradiction(std::span<const std::string> paths,
                                                   bool is_parameter) const;
  // Whether layers_to_transform has it, or is not there.
  bool has_layer(int layer) const;
  // Of an activated LoRA (alora_invocation_tokens): it acts from where the prompt has these last.
  // Empty: from the beginning.
  const std::vector<TokenId>& invocation() const { return invocation_; }
  // Written by PEFT 0.19, which exchanged in and out of experts in some models: what decides where
  // shapes fit both ways.
  bool may_exchange_in_and_out() const { return may_exchange_; }

 private:
  Result<void> read(const Json& config);
  Result<void> read_numbers(const Json& config);
  Result<void> read_layers(const Json& config);
  Result<void> read_invocation(const Json& config);
  Result<ModulePatterns> read_patterns(const Json& config, const char* field) const;
  Error bad(const std::string& what) const;

  std::string file_;
  int rank_ = 0;
  double alpha_ = 0;
  bool rslora_ = false;
  ModuleTargets targets_;
  ModulePatterns rank_pattern_;
  ModulePatterns alpha_pattern_;
  std::vector<int> layers_;  // empty: all
  std::vector<TokenId> invocation_;
  bool may_exchange_ = false;
};

}  // namespace pelton::lora
