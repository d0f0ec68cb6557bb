#include "tensor/compact_bf16.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"

namespace pelton::tensor {
namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kBlocksOfARaw = 64;  // room for one raw block in so many
constexpr int64_t kRawAtLeast = 8;     // and so many more, for small matrices
constexpr int kCodeMax = 15;

int64_t bytes_of_rows(int64_t rows, int64_t columns) {
  const int64_t bytes = rows * row_bytes(DType::kCompactBf16, columns);
  return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

int64_t raw_max(int64_t rows, int64_t columns) {
  return rows * (columns / kBlockElements) / kBlocksOfARaw + kRawAtLeast;
}

int exponent(uint16_t bits) {
  return bits >> 7 & 0xFF;
}

// False: the exponents lie too far apart, and nothing was written.
bool write_block(const uint16_t* from, uint8_t* to) {
  int highest = 0;
  int lowest = 255;  // of those that are not 0
  for (int j = 0; j < kBlockElements; ++j) {
    const int e = exponent(from[j]);
    highest = std::max(highest, e);
    if (e > 0) lowest = std::min(lowest, e);
  }
  const int base = std::max(highest - kCodeMax, 0);
  if (lowest <= base) return false;
  to[0] = static_cast<uint8_t>(base);
  const auto code = [&](int j) {
    const int e = exponent(from[j]);
    return e == 0 ? 0 : e - base;
  };
  for (int j = 0; j < 16; ++j) to[1 + j] = static_cast<uint8_t>(code(j) | code(16 + j) << 4);
  for (int j = 0; j < kBlockElements; ++j) {
    to[17 + j] = static_cast<uint8_t>((from[j] >> 8 & 0x80) | (from[j] & 0x7F));
  }
  return true;
}

}  // namespace

int64_t compact_bytes(int64_t rows, int64_t columns) {
  return bytes_of_rows(rows, columns) + raw_max(rows, columns) * kCompactRawBytes;
}

CompactWriter::CompactWriter(const uint16_t* from, int64_t rows, int64_t columns, uint8_t* to)
    : from_(from),
      blocks_(columns / kBlockElements),
      to_(to),
      raw_(to + bytes_of_rows(rows, columns)),
      raw_max_(raw_max(rows, columns)) {
  CHECK(columns % kBlockElements == 0 && blocks_ <= UINT16_MAX);
}

void CompactWriter::write_rows(int64_t begin, int64_t end) {
  const int64_t columns = blocks_ * kBlockElements;
  const int64_t row_size = row_bytes(DType::kCompactBf16, columns);
  std::vector<const uint16_t*> raw;  // of one row
  for (int64_t r = begin; r < end; ++r) {
    uint8_t* const row = to_ + r * row_size;
    raw.clear();
    for (int64_t b = 0; b < blocks_; ++b) {
      const uint16_t* const from = from_ + r * columns + b * kBlockElements;
      uint8_t* const block = row + kCompactHeaderBytes + b * kCompactBlockBytes;
      if (write_block(from, block)) continue;
      block[0] = kCompactRaw;
      const auto index = static_cast<uint16_t>(raw.size());
      std::memcpy(block + 1, &index, sizeof index);
      raw.push_back(from);
    }
    if (raw.empty()) continue;
    const auto count = static_cast<int64_t>(raw.size());
    const int64_t first = raw_count_.fetch_add(count);
    if (first + count > raw_max_) return;
    uint8_t* const at = raw_ + first * kCompactRawBytes;
    const int64_t offset = at - row;
    std::memcpy(row, &offset, sizeof offset);
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(at + i * kCompactRawBytes, raw[static_cast<size_t>(i)], kCompactRawBytes);
    }
  }
}

void read_compact_row(const uint8_t* row, int64_t columns, uint16_t* out) {
  const uint8_t* const raw = compact_raw_blocks(row);
  const uint8_t* block = row + kCompactHeaderBytes;
  for (int64_t i = 0; i < columns; i += kBlockElements, block += kCompactBlockBytes) {
    if (block[0] == kCompactRaw) {
      std::memcpy(out + i, compact_raw_block(raw, block), kCompactRawBytes);
      continue;
    }
    for (int j = 0; j < kBlockElements; ++j) {
      const int code = j < 16 ? block[1 + j] & 15 : block[1 + j - 16] >> 4;
      const int e = code == 0 ? 0 : block[0] + code;
      const int byte = block[17 + j];
      out[i + j] = static_cast<uint16_t>((byte & 0x80) << 8 | e << 7 | (byte & 0x7F));
    }
  }
}

}  // namespace pelton::tensor
