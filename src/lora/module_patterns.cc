#include "lora/module_patterns.h"

#include <utility>

#include <fmt/format.h>

#include "checkpoint/foreign_text.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace pelton::lora {
namespace {

// A path has some fifty bytes; what needs more steps than this backtracks without end.
constexpr uint32_t kMatchStepsMax = 20'000;
constexpr uint32_t kHeapLimitKiB = 1024;

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
using CodePointer = std::unique_ptr<pcre2_code, FreeCode>;

Error bad(std::string_view field, std::string_view key, const std::string& what) {
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{}: the key {} {}", field, checkpoint::shown(key), what)};
}

}  // namespace

struct ModulePatterns::Pattern {
  std::string key;
  CodePointer code;
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
    if (member.key.size() > kPatternBytesMax) {
      return bad(field, member.key, fmt::format("is longer than {} bytes", kPatternBytesMax));
    }
    const std::string spelled = fmt::format(R"((?:.*\.)?(?:{})$)", member.key);
    int code = 0;
    size_t offset = 0;
    CodePointer compiled(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled.data()), spelled.size(),
                                       PCRE2_ANCHORED | PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &code,
                                       &offset, nullptr));
    if (compiled == nullptr) {
      PCRE2_UCHAR words[256];
      pcre2_get_error_message(code, words, sizeof words);
      return bad(field, member.key,
                 fmt::format("is not a regular expression that PCRE2 knows: {}",
                             reinterpret_cast<const char*>(words)));
    }
    made.patterns_.push_back({member.key, std::move(compiled), member.value.as_number()});
  }
  return made;
}

Result<std::optional<double>> ModulePatterns::find(std::span<const std::string> paths) const {
  if (patterns_.empty()) return std::optional<double>();
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> limits(
      pcre2_match_context_create(nullptr), &pcre2_match_context_free);
  CHECK(match != nullptr && limits != nullptr, "out of memory");
  pcre2_set_match_limit(limits.get(), kMatchStepsMax);
  pcre2_set_heap_limit(limits.get(), kHeapLimitKiB);
  for (const Pattern& pattern : patterns_) {
    for (const std::string& path : paths) {
      const int matched =
          pcre2_match(pattern.code.get(), reinterpret_cast<PCRE2_SPTR>(path.data()), path.size(), 0,
                      PCRE2_NO_UTF_CHECK, match.get(), limits.get());
      if (matched >= 0) return std::optional<double>(pattern.value);
      if (matched != PCRE2_ERROR_NOMATCH) {
        return bad(field_, pattern.key, "takes too long to match");
      }
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
