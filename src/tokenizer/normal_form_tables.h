// Unicode 14's canonical decompositions and compositions, for normal_form.cc. Tables sorted by
// their first field (and second); Hangul syllables are not in them. Constants.
#pragma once

#include <cstdint>

namespace pelton::tokenizer {

struct Decomposition {
  uint32_t code_point;
  uint16_t at;     // in kDecompositionLetters
  uint16_t count;  // decomposed to the end
};
struct CombiningRange {
  uint32_t first;
  uint32_t last;
  uint8_t combining_class;
};
struct Composition {
  uint32_t left;
  uint32_t right;
  uint32_t whole;
};

extern const Decomposition kDecompositions[2061];
extern const uint32_t kDecompositionLetters[3406];
extern const CombiningRange kCombiningRanges[382];
extern const Composition kCompositions[941];

}  // namespace pelton::tokenizer
