// How the one-byte KV types hold a head's key or value: scaled by one bf16 number so that its
// largest element just fits. int8 is rotated by a Walsh-Hadamard transform before, which spreads an
// outlier channel over all of them and leaves scalar products as they are; fp8, whose steps grow
// with the element, only loses by that (docs/decisions/0009-kv-dtypes.md). Plain code: the
// reference's, and the measure of the fast kernels, which must write the same bytes. No state, any
// thread.
#pragma once

#include <bit>
#include <cstdint>

#include "tensor/bits.h"
#include "tensor/dtype.h"

namespace pelton::kernels {

inline constexpr int kHeadSizeMax = 256;

// Of kI8: keys and values lie rotated.
bool kv_is_rotated(tensor::DType dtype);

// Elements that are rotated together: the largest power of two that divides head_size.
int hadamard_size(int head_size);

// x <- H x in groups of hadamard_size, where H has only +1 and -1: doing it twice is a
// multiplication by hadamard_size. x: float (head_size).
//
// Of four elements: 1 2 3 4, pairs one apart become sum and difference: 3 -1 7 -1; two apart: 10 -2
// -4 0. As int8 the scale is 10 / 127, as a bf16 that is not below: 0.0791; the codes are 126 -25
// -51 0. Read back and rotated once more, over 4: 0.989 1.978 3.006 3.995.
void hadamard_transform(float* x, int head_size);

// The scale of a vector, rotated if it is to be, as bf16, such that its largest element codes as
// the type's largest. NaN if an element is not finite: then the vector reads back as NaN, and the
// error is seen.
uint16_t kv_scale(const float* x, int head_size, tensor::DType dtype);

// One element. scale: from kv_scale, as float.
uint8_t quantize_kv(float x, float scale, tensor::DType dtype);
float dequantize_kv(uint8_t code, float scale, tensor::DType dtype);

// What kv_scale and quantize_kv compute, for threads that share a vector (a device's kernels use
// them). largest: the bits of the vector's largest magnitude, found by comparing them as integers;
// share: 1 over the type's largest code.
constexpr uint16_t kv_scale_of(uint32_t largest, float share) {
  // Scales below this would have an inverse beyond float32; a vector so small is as good as zero.
  constexpr float kScaleMin = 0x1p-100f;
  if (largest >= 0x7F800000u) return 0x7FC0;
  const float scale = std::bit_cast<float>(largest) * share;
  return tensor::float_to_bf16_up(scale < kScaleMin ? kScaleMin : scale);
}
constexpr uint16_t kv_fp8_scale(uint32_t largest) {
  return kv_scale_of(largest, 1.0f / 448);
}
constexpr uint8_t quantize_kv_fp8(float x, float scale) {
  const bool is_broken = scale != scale;
  return is_broken ? 0 : tensor::float_to_e4m3(x * (1.0f / scale));
}

}  // namespace pelton::kernels
