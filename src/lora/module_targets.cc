#include "lora/module_targets.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include <fmt/format.h>

namespace pelton::lora {
namespace {

constexpr std::string_view kModules = "target_modules";
constexpr std::string_view kParameters = "target_parameters";
constexpr std::string_view kExcluded = "exclude_modules";

Error bad(std::string_view field, std::string_view what) {
  return {ErrorCode::kInvalidArgument, fmt::format("{} {}", field, what), ""};
}

bool is_all_linear(const std::string& text) {
  constexpr std::string_view kAll = "all-linear";
  return std::ranges::equal(
      text, kAll, [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; });
}

}  // namespace

Result<ModuleTargets::Field> ModuleTargets::read_field(const Json& config, std::string_view name) {
  Field field;
  const Json* value = config.find(name);
  if (value == nullptr || value->is_null()) return field;
  field.is_given = true;
  if (value->is_string()) {
    field.is_all = is_all_linear(value->as_string());
    if (field.is_all) return field;
    Result<PathPattern> pattern =
        PathPattern::compile(value->as_string(), PathPattern::Where::kWhole);
    if (!pattern.ok()) return bad(name, pattern.error().message);
    field.pattern = *std::move(pattern);
    return field;
  }
  if (!value->is_array()) {
    return bad(name, fmt::format("is {}, neither names nor a pattern", value->kind_name()));
  }
  if (value->as_array().size() > kNamesMax) {
    return bad(name, fmt::format("has more than {} names", kNamesMax));
  }
  for (const Json& one : value->as_array()) {
    if (!one.is_string()) return bad(name, fmt::format("holds {}, no string", one.kind_name()));
    field.names.push_back(one.as_string());
  }
  std::ranges::sort(field.names);
  field.names.erase(std::unique(field.names.begin(), field.names.end()), field.names.end());
  return field;
}

Result<ModuleTargets> ModuleTargets::read(const Json& config) {
  ModuleTargets made;
  TRY_ASSIGN(made.modules_, read_field(config, kModules));
  TRY_ASSIGN(made.parameters_, read_field(config, kParameters));
  TRY_ASSIGN(made.excluded_, read_field(config, kExcluded));
  return made;
}

// Of names in thousands, as a list of every module by its path, only those are looked at that a
// path's ends are: of "a.b.c" these are "c", "b.c" and "a.b.c".
Result<bool> ModuleTargets::has(const Field& field, std::string_view name,
                                std::span<const std::string> paths) {
  if (field.is_all) return true;
  for (const std::string& path : paths) {
    if (field.pattern) {
      const Result<bool> matches = field.pattern->matches(path);
      if (!matches.ok()) return bad(name, matches.error().message);
      if (*matches) return true;
    }
    for (size_t at = 0; at < path.size(); ++at) {
      if (at > 0 && path[at - 1] != '.') continue;
      if (std::ranges::binary_search(field.names, std::string_view(path).substr(at))) return true;
    }
  }
  return false;
}

Result<std::optional<std::string>> ModuleTargets::contradiction(std::span<const std::string> paths,
                                                                bool is_parameter) const {
  TRY_ASSIGN(const bool is_excluded, has(excluded_, kExcluded, paths));
  if (is_excluded) return std::optional(fmt::format("is among {}", kExcluded));
  TRY_ASSIGN(const bool is_module, has(modules_, kModules, paths));
  if (is_module) return std::optional<std::string>();
  if (is_parameter) {
    TRY_ASSIGN(const bool is_named, has(parameters_, kParameters, paths));
    if (is_named) return std::optional<std::string>();
  }
  const bool is_left_out = modules_.is_given || (is_parameter && parameters_.is_given);
  if (!is_left_out) return std::optional<std::string>();
  return std::optional(is_parameter
                           ? fmt::format("is among neither {} nor {}", kParameters, kModules)
                           : fmt::format("is not among {}", kModules));
}

}  // namespace pelton::lora
