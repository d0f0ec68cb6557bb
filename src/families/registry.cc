#include "families/registry.h"

#include <fmt/format.h>

#include "families/deepseek.h"
#include "families/gemma3.h"
#include "families/gpt_oss.h"
#include "families/llama.h"
#include "families/mistral.h"
#include "families/mixtral.h"
#include "families/qwen2.h"
#include "families/qwen3.h"
#include "families/qwen3_moe.h"

namespace pelton::families {
namespace {

constexpr const Family* kFamilies[] = {
    &kGptOss,  // messages name it first
    &kDeepseekV2, &kDeepseekV3, &kGemma3, &kLlama,    &kMistral,
    &kMixtral,    &kQwen2,      &kQwen3,  &kQwen3Moe,
};

}  // namespace

std::span<const Family* const> all_families() {
  return kFamilies;
}

const Family* find_family(std::string_view architecture, std::string_view model_type) {
  for (const Family* family : kFamilies) {
    if (family->architecture == architecture && family->model_type == model_type) return family;
    for (const FamilyAlias& alias : family->aliases) {
      if (alias.architecture == architecture && alias.model_type == model_type) return family;
    }
  }
  return nullptr;
}

const Family* find_gguf_family(std::string_view architecture, bool has_experts,
                               int64_t expert_gating) {
  const Family* found = nullptr;
  for (const Family* family : kFamilies) {
    if (family->gguf == nullptr || family->gguf->architecture != architecture) continue;
    if (family->gguf->expert_gating != 0 && family->gguf->expert_gating != expert_gating) continue;
    if (found == nullptr || family->gguf->has_experts == has_experts) found = family;
  }
  return found;
}

std::string supported_families() {
  std::string text;
  const auto add = [&](std::string_view architecture, std::string_view model_type) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", architecture, model_type);
  };
  for (const Family* family : kFamilies) {
    add(family->architecture, family->model_type);
    for (const FamilyAlias& alias : family->aliases) add(alias.architecture, alias.model_type);
  }
  return text;
}

}  // namespace pelton::families
