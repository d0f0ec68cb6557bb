// Cuts text into the pieces that byte-pair encoding works on; no token crosses a piece's end.
// Two of them: the hand-written scanner of the o200k pattern, and PCRE2 for any other pattern.
// Immutable; any thread.
#pragma once

#include <string_view>

#include "base/function_ref.h"

namespace pelton::tokenizer {

class Splitter {
 public:
  virtual ~Splitter() = default;

  // Calls `piece` with the pieces in order; together they are `text`, none is empty.
  // `text` must be valid UTF-8.
  virtual void split(std::string_view text,
                     base::FunctionRef<void(std::string_view)> piece) const = 0;
};

}  // namespace pelton::tokenizer
