// What a worker is for in a pool that splits requests: prompts are computed by one, and another one
// goes on with the answer. Values, pure functions.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace pelton::cluster {

enum class WorkerRole { kBoth, kPrefill, kDecode };

inline constexpr std::array<std::pair<WorkerRole, std::string_view>, 3> kWorkerRoles = {
    {{WorkerRole::kBoth, "both"},
     {WorkerRole::kPrefill, "prefill"},
     {WorkerRole::kDecode, "decode"}}};

constexpr std::string_view worker_role_name(WorkerRole role) {
  return kWorkerRoles[static_cast<size_t>(role)].second;
}

inline std::optional<WorkerRole> worker_role_named(std::string_view name) {
  const auto* const found =
      std::ranges::find(kWorkerRoles, name, &decltype(kWorkerRoles)::value_type::second);
  return found == kWorkerRoles.end() ? std::nullopt : std::optional(found->first);
}

// It computes prompts that others go on from.
constexpr bool computes_prompts(WorkerRole role) {
  return role != WorkerRole::kDecode;
}

// It ends answers: those that others began, and whole ones.
constexpr bool decodes(WorkerRole role) {
  return role != WorkerRole::kPrefill;
}

}  // namespace pelton::cluster
