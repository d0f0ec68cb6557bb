#include "lora/module_patterns.h"

#include <utility>

#include <fmt/format.h>

#include "checkpoint/foreign_text.h"
#include "lora/path_pattern.h"

namespace pelton::lora {
namespace {

Error bad(std::string_view field, std::string_view key, const std::string& what) {
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{}: the key {} {}", field, checkpoint::shown(key), what)};
}

}  // namespace

struct ModulePatterns::Pattern {
  std::string key;
  PathPattern path;
  double value = 0;
};

ModulePatterns::ModulePatterns() = default;
ModulePatterns::~ModulePatterns() = default;
ModulePatterns::ModulePatterns(ModulePatterns&&) noexcept = default;
ModulePatterns& ModulePatterns::operator=(ModulePatterns&&) noexcept = default;

Result<ModulePatterns> ModulePatterns::compile(const Json& table, std::string_view field) {
  ModulePatterns made;
  made.field_ = field;
  if (table.as_object().size() > kPatternsMax) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} has {} entries; the limit is {}", field, table.as_object().size(),
                             kPatternsMax)};
  }
  for (const Json::Member& member : table.as_object()) {
    if (!member.value.is_number()) return bad(field, member.key, "has no number");
    Result<PathPattern> path = PathPattern::compile(member.key, PathPattern::Where::kEnd);
    if (!path.ok()) return bad(field, member.key, path.error().message);
    made.patterns_.push_back({member.key, *std::move(path), member.value.as_number()});
  }
  return made;
}

Result<std::optional<double>> ModulePatterns::find(std::span<const std::string> paths) const {
  for (const Pattern& pattern : patterns_) {
    for (const std::string& path : paths) {
      const Result<bool> matches = pattern.path.matches(path);
      if (!matches.ok()) return bad(field_, pattern.key, matches.error().message);
      if (*matches) return std::optional<double>(pattern.value);
    }
  }
  return std::optional<double>();
}

std::vector<double> ModulePatterns::values() const {
  std::vector<double> values;
  for (const Pattern& pattern : patterns_) values.push_back(pattern.value);
  return values;
}

}  // namespace pelton::lora
