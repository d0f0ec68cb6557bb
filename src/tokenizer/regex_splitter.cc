// The one file that knows PCRE2. The text was validated once, so every match runs with
// PCRE2_NO_UTF_CHECK: without it PCRE2 checks the whole rest of the text again for each piece.
#include "tokenizer/regex_splitter.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "base/check.h"
#include "base/utf8.h"

namespace pelton::tokenizer {
namespace {

constexpr size_t kPatternBytesMax = 16384;
// PCRE2 counts each character that a repeat gives back, and `\s*[\r\n]+` gives back a whole run of
// spaces. So an honest pattern may take some steps for each byte of the text, but no more.
constexpr uint64_t kMatchStepsBase = 100'000;
constexpr uint64_t kMatchStepsPerByte = 16;
constexpr uint32_t kHeapLimitKiB = 64 * 1024;

using CodePointer = std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)>;

// PCRE2's \s has U+180E, which is no White_Space; the engines that tokenizers are made with follow
// Unicode. So \s and \S become the property.
std::string with_unicode_spaces(const std::string& pattern) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      out.push_back(pattern[i]);
      continue;
    }
    const char escaped = pattern[++i];
    if (escaped == 's') {
      out += R"(\p{White_Space})";
    } else if (escaped == 'S') {
      out += R"(\P{White_Space})";
    } else {
      out += {'\\', escaped};
    }
  }
  return out;
}

std::string pcre2_words(int error) {
  PCRE2_UCHAR words[256];
  pcre2_get_error_message(error, words, sizeof words);
  return reinterpret_cast<const char*>(words);
}

Result<CodePointer> compile_one(const std::string& pattern) {
  if (pattern.size() > kPatternBytesMax) {
    return Error{ErrorCode::kBadCheckpoint, fmt::format("the pattern has {} bytes, the limit is {}",
                                                        pattern.size(), kPatternBytesMax)};
  }
  const std::string spelled = with_unicode_spaces(pattern);
  int error = 0;
  size_t offset = 0;
  CodePointer code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled.data()), spelled.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr),
      &pcre2_code_free);
  if (code == nullptr) {
    return Error{ErrorCode::kBadCheckpoint,
                 fmt::format("not a regular expression that PCRE2 knows: {} (at byte {} of {})",
                             pcre2_words(error), offset, spelled)};
  }
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // without a JIT it only is slower
  return code;
}

}  // namespace

struct RegexSplitter::Pattern {
  CodePointer code;
};

// One split call's state: PCRE2's scratch memory must not be shared between threads.
class RegexSplitter::Search {
 public:
  Search(const std::vector<Pattern>& patterns, size_t text_bytes,
         base::FunctionRef<void(std::string_view)> piece)
      : patterns_(patterns),
        piece_(piece),
        match_(pcre2_match_data_create(1, nullptr), &pcre2_match_data_free),
        limits_(pcre2_match_context_create(nullptr), &pcre2_match_context_free) {
    CHECK(match_ != nullptr && limits_ != nullptr, "out of memory");
    const uint64_t steps = kMatchStepsBase + kMatchStepsPerByte * text_bytes;
    pcre2_set_match_limit(limits_.get(),
                          static_cast<uint32_t>(std::min<uint64_t>(steps, UINT32_MAX)));
    pcre2_set_heap_limit(limits_.get(), kHeapLimitKiB);
  }

  // Cuts `text` by the patterns from number `level` on.
  void cut(std::string_view text, size_t level) {
    if (text.empty()) return;
    if (level == patterns_.size() || exhausted_) {
      piece_(text);
      return;
    }
    size_t done = 0;
    size_t from = 0;
    while (from <= text.size() && !exhausted_) {
      if (!find(text, from, level)) break;
      const size_t* place = pcre2_get_ovector_pointer(match_.get());
      const size_t begin = place[0];
      const size_t end = place[1];
      if (begin < done || end < begin) break;  // \K can place a match's ends oddly
      cut(text.substr(done, begin - done), level + 1);
      cut(text.substr(begin, end - begin), level + 1);
      done = end;
      from = end > begin ? end : behind_next(text, end);
    }
    cut(text.substr(done), level + 1);
  }

 private:
  bool find(std::string_view text, size_t from, size_t level) {
    const auto run = [&](uint32_t options) {
      return pcre2_match(patterns_[level].code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                         text.size(), from, PCRE2_NO_UTF_CHECK | options, match_.get(),
                         limits_.get());
    };
    int matched = run(0);
    // The JIT's stack is small; the interpreter keeps its on the heap.
    if (matched == PCRE2_ERROR_JIT_STACKLIMIT) matched = run(PCRE2_NO_JIT);
    if (matched < 0 && matched != PCRE2_ERROR_NOMATCH) exhausted_ = true;
    return matched >= 0;
  }

  static size_t behind_next(std::string_view text, size_t at) {
    return at < text.size() ? at + base::utf8_step(text.substr(at)).bytes : at + 1;
  }

  const std::vector<Pattern>& patterns_;
  base::FunctionRef<void(std::string_view)> piece_;
  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match_;
  std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> limits_;
  bool exhausted_ = false;  // PCRE2 gave up once: no more searching in this text
};

Result<std::unique_ptr<RegexSplitter>> RegexSplitter::compile(
    const std::vector<std::string>& patterns) {
  std::vector<Pattern> compiled;
  for (const std::string& pattern : patterns) {
    Result<CodePointer> code = compile_one(pattern);
    if (!code.ok()) {
      Error error = std::move(code).error();
      error.field = fmt::format("{}", compiled.size());
      return error;
    }
    compiled.push_back({std::move(code).value()});
  }
  return std::unique_ptr<RegexSplitter>(new RegexSplitter(std::move(compiled)));
}

RegexSplitter::RegexSplitter(std::vector<Pattern> patterns) : patterns_(std::move(patterns)) {}

RegexSplitter::~RegexSplitter() = default;

void RegexSplitter::split(std::string_view text,
                          base::FunctionRef<void(std::string_view)> piece) const {
  Search(patterns_, text.size(), piece).cut(text, 0);
}

}  // namespace pelton::tokenizer
