#include "families/registry.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

// A line for each family, in the order of the alphabet behind gpt-oss, which messages name first.
// The constant is defined in the family's file.
#define PELTON_FAMILIES(X) \
  X(kGptOss)               \
  X(kBert)                 \
  X(kDeepseekV2)           \
  X(kDeepseekV3)           \
  X(kGemma3)               \
  X(kGranite)              \
  X(kLlama)                \
  X(kMistral)              \
  X(kMixtral)              \
  X(kQwen2)                \
  X(kQwen3)                \
  X(kQwen3Moe)

namespace pelton::families {

#define PELTON_DECLARE(family) extern const Family family;
PELTON_FAMILIES(PELTON_DECLARE)
#undef PELTON_DECLARE

namespace {

#define PELTON_LIST(family) &family,
constexpr const Family* kFamilies[] = {PELTON_FAMILIES(PELTON_LIST)};
#undef PELTON_LIST

constexpr Registry kBuiltIn{kFamilies};

// The device kernels are written for their layers, and for no others yet.
constexpr const Family* kOnDevices[] = {&kGptOss};

// A family that has a line above has none here: Qwen 2 with experts.
constexpr std::string_view kPlannedTypes[] = {"qwen2_moe"};

// Of a family with many names only the model types, each once: the text stands in an error.
std::string types_of(const Family& family) {
  std::vector<std::string_view> types = {family.model_type};
  for (const FamilyAlias& alias : family.aliases) {
    if (std::ranges::find(types, alias.model_type) == types.end())
      types.push_back(alias.model_type);
  }
  return fmt::format("{}", fmt::join(types, ", "));
}

}  // namespace

const Registry& Registry::built_in() {
  return kBuiltIn;
}

const Family* Registry::find(std::string_view architecture, std::string_view model_type) const {
  for (const Family* family : families_) {
    if (family->architecture == architecture && family->model_type == model_type) return family;
    for (const FamilyAlias& alias : family->aliases) {
      if (alias.architecture == architecture && alias.model_type == model_type) return family;
    }
  }
  return nullptr;
}

const Family* Registry::find_gguf(std::string_view architecture, const GgufKind& kind) const {
  const Family* found = nullptr;
  int most = -1;
  for (const Family* family : families_) {
    const GgufNames* const names = family->gguf;
    if (names == nullptr || names->architecture != architecture) continue;
    if (names->expert_gating != 0 && names->expert_gating != kind.expert_gating) continue;
    const int fits = (names->has_experts == kind.has_experts ? 2 : 0) +
                     (names->has_window == kind.has_window ? 1 : 0);
    if (fits > most) found = family;
    most = std::max(most, fits);
  }
  return found;
}

std::string Registry::supported() const {
  constexpr size_t kNamedAliases = 3;
  std::string text;
  const auto add = [&](std::string_view architecture, std::string_view model_type) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", architecture, model_type);
  };
  for (const Family* family : families_) {
    if (family->aliases.size() > kNamedAliases) {
      add(family->architecture, types_of(*family));
      continue;
    }
    add(family->architecture, family->model_type);
    for (const FamilyAlias& alias : family->aliases) add(alias.architecture, alias.model_type);
  }
  return text;
}

bool on_devices(const Family& family) {
  return std::ranges::find(kOnDevices, &family) != std::end(kOnDevices);
}

std::span<const std::string_view> planned_types() {
  return kPlannedTypes;
}

}  // namespace pelton::families
