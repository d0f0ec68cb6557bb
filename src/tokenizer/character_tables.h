// Unicode 14 as far as normalising text for WordPiece needs it: letters that have a lower case,
// and ranges of code points by category. Sorted; nothing overlaps. Constants.
#pragma once

#include <cstdint>

namespace pelton::tokenizer {

// first, first + step, ... last: each + offset is its lower case.
struct CaseRun {
  uint32_t first;
  uint32_t last;
  uint8_t step;
  int32_t offset;
};
struct CodePointRange {
  uint32_t first;
  uint32_t last;
};

extern const CaseRun kCaseRuns[181];
extern const CodePointRange kWideMarks[182];
extern const CodePointRange kPunctuation[189];
extern const CodePointRange kNoCharacters[701];

}  // namespace pelton::tokenizer
