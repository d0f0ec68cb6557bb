// A regular expression of an adapter's configuration, for modules' paths: PCRE2 with bounded steps,
// as whoever wrote it may be anybody. Immutable once made; one thread at a time may match.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pelton::lora {

class PathPattern {
 public:
  static constexpr size_t kBytesMax = 4096;

  ~PathPattern();
  PathPattern(PathPattern&&) noexcept;
  PathPattern& operator=(PathPattern&&) noexcept;

  // Of the whole path, or of its end behind a dot (or of all of it). Errors: kInvalidArgument, what
  // is wrong with it as the end of a sentence: "is not a regular expression that PCRE2 knows: ...".
  enum class Where : uint8_t { kWhole, kEnd };
  static Result<PathPattern> compile(std::string_view pattern, Where where);

  // kInvalidArgument: "takes too long to match".
  Result<bool> matches(const std::string& path) const;

 private:
  struct Code;
  explicit PathPattern(std::unique_ptr<Code> code);

  std::unique_ptr<Code> code_;
};

}  // namespace pelton::lora
