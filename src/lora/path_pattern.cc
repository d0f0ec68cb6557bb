#include "lora/path_pattern.h"

#include <utility>

#include <fmt/format.h>

#include "base/check.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace pelton::lora {
namespace {

// A path has some fifty bytes; what needs more steps than this backtracks without end.
constexpr uint32_t kMatchStepsMax = 20'000;
constexpr uint32_t kHeapLimitKiB = 1024;

}  // namespace

struct PathPattern::Code {
  ~Code() {
    pcre2_match_context_free(limits);
    pcre2_match_data_free(match);
    pcre2_code_free(code);
  }

  pcre2_code* code = nullptr;
  pcre2_match_data* match = nullptr;
  pcre2_match_context* limits = nullptr;
};

PathPattern::PathPattern(std::unique_ptr<Code> code) : code_(std::move(code)) {}
PathPattern::~PathPattern() = default;
PathPattern::PathPattern(PathPattern&&) noexcept = default;
PathPattern& PathPattern::operator=(PathPattern&&) noexcept = default;

Result<PathPattern> PathPattern::compile(std::string_view pattern, Where where) {
  if (pattern.size() > kBytesMax) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("is longer than {} bytes", kBytesMax)};
  }
  const std::string spelled = where == Where::kEnd ? fmt::format(R"((?:.*\.)?(?:{})$)", pattern)
                                                   : fmt::format(R"((?:{})\z)", pattern);
  auto made = std::make_unique<Code>();
  int code = 0;
  size_t offset = 0;
  made->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled.data()), spelled.size(),
                    PCRE2_ANCHORED | PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &code, &offset, nullptr);
  if (made->code == nullptr) {
    PCRE2_UCHAR words[256];
    pcre2_get_error_message(code, words, sizeof words);
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("is not a regular expression that PCRE2 knows: {}",
                             reinterpret_cast<const char*>(words))};
  }
  made->match = pcre2_match_data_create(1, nullptr);
  made->limits = pcre2_match_context_create(nullptr);
  CHECK(made->match != nullptr && made->limits != nullptr, "out of memory");
  pcre2_set_match_limit(made->limits, kMatchStepsMax);
  pcre2_set_heap_limit(made->limits, kHeapLimitKiB);
  return PathPattern(std::move(made));
}

Result<bool> PathPattern::matches(const std::string& path) const {
  const int matched = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(path.data()),
                                  path.size(), 0, PCRE2_NO_UTF_CHECK, code_->match, code_->limits);
  if (matched >= 0) return true;
  if (matched == PCRE2_ERROR_NOMATCH) return false;
  return Error{ErrorCode::kInvalidArgument, "takes too long to match"};
}

}  // namespace pelton::lora
