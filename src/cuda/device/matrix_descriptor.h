// How a matrix in shared memory is described to wgmma, as both compilers of device/gpu.h need it:
// rows of 64 bf16 numbers (128 bytes) one after the other, the 16-byte pieces of a row changing
// places by the row's number (product.h, staged_place), which the hardware calls a swizzle of 128
// bytes.
//
// The fields, of PTX's "matrix descriptor": bits 0..13 where it starts, 16..29 the leading
// dimension's offset (without meaning for rows of the swizzle's width), 32..45 bytes from one eight
// of rows to the next, 49..51 by how much rows are off a multiple of 1 024 bytes, 62..63 the
// swizzle. Addresses and offsets in units of 16 bytes.
#pragma once

#include <cstdint>

namespace pelton::cuda {

inline constexpr int kMatrixAlignment = 1024;  // of the first row
inline constexpr uint64_t kSwizzle128 = 1;

// Of a matrix that starts at an address of shared memory.
constexpr uint64_t matrix_descriptor(uint32_t shared_address) {
  constexpr uint64_t kLeading = 1;
  constexpr uint64_t kEightRows = 8 * 128 / 16;
  return (shared_address & 0x3FFFF) / 16 | kLeading << 16 | kEightRows << 32 | kSwizzle128 << 62;
}

// The same matrix from product m's columns on: 16 of them, 32 bytes.
constexpr uint64_t matrix_columns(uint64_t descriptor, int m) {
  return descriptor + static_cast<uint64_t>(m) * (32 / 16);
}

}  // namespace pelton::cuda
