// bf16 weights in 12 bits each, exactly. A weight keeps its sign and its mantissa, a byte together;
// the exponents of 32 weights lie close together, so each is 4 bits above a base that they share
// (as DFloat11, arXiv 2504.11651, which spends fewer bits and more work). Made in memory when a
// model is loaded, in no file. Pure; any thread.
//
// A row is an 8-byte header and a block of 49 bytes for each 32 columns:
//   byte 0        base
//   bytes 1..16   codes: the low nibble of byte 1 + j is that of weight j, the high one of 16 + j
//   bytes 17..48  weight j's sign (bit 7) and mantissa (bits 0 to 6)
// The exponent is base + code; code 0 means exponent 0: zeros and denormals. Where a block's
// exponents lie too far apart (of normally distributed weights some 3 blocks of 1 000), its base is
// kCompactRaw, bytes 1 and 2 hold i, and the block is the i-th raw one of its row: 32 bf16. Raw
// blocks of all rows stand behind the last row; a row's header says how far behind its first byte
// its own begin (0: it has none).
//
// The weights 1.5 (exponent 127, mantissa 64), -0.25 (125, 0), 0 and 29 of 1.0: base 127 - 15 =
// 112, codes 15, 13, 0 and 15, bytes 0x40, 0x80, 0 and 0. With 2^-20 (107) among them, it is raw.
#pragma once

#include <atomic>
#include <cstdint>

#include "tensor/dtype.h"

namespace pelton::tensor {

inline constexpr int kCompactHeaderBytes = 8;
inline constexpr int kCompactBlockBytes = 49;
inline constexpr uint8_t kCompactRaw = 255;  // as a base; others are at most 240
inline constexpr int kCompactRawBytes = kBlockElements * 2;

// Of a matrix, whose columns are whole blocks: its rows, and room for a raw block in 64 and 8 more;
// whole cache lines.
int64_t compact_bytes(int64_t rows, int64_t columns);

// Where a row's raw blocks begin. `row`: its header. (Never a function of its own: the kernels'
// files are compiled for other processors than the rest.)
[[gnu::always_inline]] inline const uint8_t* compact_raw_blocks(const uint8_t* row) {
  int64_t offset;
  __builtin_memcpy(&offset, row, sizeof offset);
  return row + offset;
}
// A raw block's bf16s.
[[gnu::always_inline]] inline const uint8_t* compact_raw_block(const uint8_t* raw_blocks,
                                                               const uint8_t* block) {
  uint16_t index;
  __builtin_memcpy(&index, block + 1, sizeof index);
  return raw_blocks + int64_t{index} * kCompactRawBytes;
}

// Writes a matrix, a few rows at a time, in any order, by any thread.
class CompactWriter {
 public:
  // from: bf16 (rows, columns); to: compact_bytes(rows, columns) of zeros.
  CompactWriter(const uint16_t* from, int64_t rows, int64_t columns, uint8_t* to);

  void write_rows(int64_t begin, int64_t end);
  // Whether all raw blocks had room; where they had not, what was written is of no use.
  bool fits() const { return raw_count_.load() <= raw_max_; }
  int64_t raw_count() const { return raw_count_.load(); }

 private:
  const uint16_t* const from_;
  const int64_t blocks_;  // in a row
  uint8_t* const to_;
  uint8_t* const raw_;
  const int64_t raw_max_;
  std::atomic<int64_t> raw_count_{0};
};

// out: bf16 (columns) of the row whose header is at `row`.
void read_compact_row(const uint8_t* row, int64_t columns, uint16_t* out);

}  // namespace pelton::tensor
