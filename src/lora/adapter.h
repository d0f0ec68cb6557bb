// A LoRA adapter in memory: A and B of every matrix that it adds to, checked against its base and
// laid out as kernels read them, and its identity, a digest of its weights and its effective
// configuration. Immutable; any thread. Whoever computes with it holds a reference, and so it lives
// until its last request has ended.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "families/model_config.h"
#include "kernels/kernels.h"
#include "lora/adapter_tensors.h"
#include "lora/module_sources.h"

namespace pelton::lora {

class AdapterFile;

// Which matrices adapters may add to: what they may is planned for.
enum class Targets : uint8_t { kAttention, kExperts, kAll };
Result<Targets> parse_targets(std::string_view name);  // "attention", "experts", "all"
std::string_view targets_name(Targets targets);

struct Limits {
  int rank_max = kRankMax;
  Targets targets = Targets::kAll;  // kExperts: MLPs of dense models as well
};

class Adapter {
 public:
  struct Layer {
    std::array<kernels::LowRank, kLinearCount> linear;
    kernels::ExpertLowRank experts;
  };

  // Reads FOLDER/adapter_config.json and adapter_model.safetensors, as PEFT and others write them
  // (README.md), tensor by tensor: beside what it becomes it holds the file's header and one tile.
  // What was read is what is checked and used: the files may change meanwhile. Errors name the file
  // and the field or tensor: kNotFound, kBadCheckpoint, kUnsupported, kDoesNotFit (beyond the
  // limits).
  static Result<Adapter> load(const std::string& folder, const families::ModelConfig& base,
                              const Limits& limits);

  // What of that can be refused by the configuration and the file's header, in the same words: the
  // file's numbers are not read.
  static Result<void> check(const std::string& folder, const families::ModelConfig& base,
                            const Limits& limits);

  const Layer& layer(int index) const { return layers_[static_cast<size_t>(index)]; }
  int layer_count() const { return static_cast<int>(layers_.size()); }

  // The same for the same numbers to the same effect, whatever the files' names and layout: SHA-256
  // in hexadecimal, and its first 63 bits, never 0.
  const std::string& digest() const { return digest_; }
  int64_t identity() const { return identity_; }

  // Of an activated one: what it acts from, where a prompt has it last. Empty: it acts everywhere.
  const std::vector<TokenId>& invocation() const { return invocation_; }
  int rank_max() const { return rank_max_; }
  ExpertLayout layout() const { return layout_; }  // of its file
  bool adds_to_experts() const { return adds_to_experts_; }
  int64_t tensor_bytes() const { return tensor_bytes_; }  // of its matrices, as stored
  int64_t bytes() const { return bytes_; }                // held

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  struct Examined;
  static Result<Examined> examine(const std::string& folder, const families::ModelConfig& base,
                                  const Limits& limits);
  static Result<void> check_limits(const std::vector<ModuleSource>& sources, const Limits& limits,
                                   const std::string& file);
  struct Place;
  Result<std::vector<Place>> allocate(const std::vector<ModuleSource>& sources,
                                      const std::string& path);
  Result<void> fill(const std::vector<ModuleSource>& sources, const std::vector<Place>& places,
                    const families::ModelConfig& base, AdapterFile& file);
  void add(const ModuleSource& source, const kernels::LowRank& matrix);
  void name(const std::vector<ModuleSource>& sources);

  std::vector<Layer> layers_;
  std::unique_ptr<std::byte, Free> memory_;
  std::string digest_;
  int64_t identity_ = 0;
  std::vector<TokenId> invocation_;
  int rank_max_ = 0;
  ExpertLayout layout_ = ExpertLayout::kNone;
  bool adds_to_experts_ = false;
  int64_t tensor_bytes_ = 0;
  int64_t bytes_ = 0;
};

// What an adapter of that rank on every allowed matrix of the base takes at most, in float32: the
// bound that files are read within.
int64_t adapter_bytes_max(const families::ModelConfig& base, const Limits& limits);

}  // namespace pelton::lora
