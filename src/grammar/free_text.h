// Automata of free text that must not run past some marks: what stands between structures
// (structural_tag.h). Text is valid UTF-8. Pure functions; any thread.
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "grammar/byte_dfa.h"

namespace pelton::grammar {

// Texts in which none of `marks` occurs.
Result<ByteDfa> text_without(std::span<const std::string> marks, const DfaLimits& limits);

struct TextUntil {
  std::span<const std::string> ends;   // one of these ends the text
  std::span<const std::string> marks;  // none of these has ended before
  std::span<const std::string> never;  // none of these occurs, not even at the end
};
Result<ByteDfa> text_until(const TextUntil& until, const DfaLimits& limits);

}  // namespace pelton::grammar
