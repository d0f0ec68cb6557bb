// The families that this engine computes. Constants; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "families/family.h"

namespace pelton::families {

// What distinguishes the families of one architecture of GGUF, as a file says it.
struct GgufKind {
  bool has_experts = false;
  bool has_window = false;
  int64_t expert_gating = 1;  // expert_gating_func; older files of DeepSeek V2 do not say it
};

// The families that a configuration is looked up in. The program knows one registry, built_in();
// the tests of the seam make one with a family of their own, and hand it to what reads files.
class Registry {
 public:
  // The families, and the array of them, outlive the registry.
  explicit constexpr Registry(std::span<const Family* const> families) : families_(families) {}

  static const Registry& built_in();

  std::span<const Family* const> families() const { return families_; }
  // Null if there is none.
  const Family* find(std::string_view architecture, std::string_view model_type) const;
  const Family* find_gguf(std::string_view architecture, const GgufKind& kind) const;
  // "GptOssForCausalLM (gpt_oss), ...", for messages.
  std::string supported() const;

 private:
  std::span<const Family* const> families_;
};

// What parse_model_config(config, generation, file) does with the families built in.
Result<ModelConfig> parse_model_config(const Json& config, const Json* generation,
                                       const std::string& file, const Registry& registry);

// Whether the device kernels (src/cuda) compute models of the family.
bool on_devices(const Family& family);

// Values of model_type that are counted and planned for, not computed: made like Llama.
std::span<const std::string_view> planned_types();

}  // namespace pelton::families
