// How the one-byte KV types hold a head's key or value: scaled by one bf16 number so that its
// largest element just fits. int8 is turned by a Walsh-Hadamard transform before, which spreads an
// outlier channel over all of them and leaves scalar products as they are; fp8, whose steps grow
// with the element, only loses by that (docs/decisions/0009-kv-dtypes.md). Plain code: the
// reference's, and the measure of the fast kernels, which must write the same bytes. No state, any
// thread.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace pelton::kernels {

inline constexpr int kHeadSizeMax = 256;

// Of kI8: keys and values lie turned.
bool kv_is_turned(tensor::DType dtype);

// Elements that are turned together: the largest power of two that divides head_size.
int kv_turn_size(int head_size);

// x <- H x in groups of kv_turn_size, where H has only +1 and -1: doing it twice is a
// multiplication by kv_turn_size. x: float (head_size).
void kv_turn(float* x, int head_size);

// The scale of a vector, turned if it is to be, as bf16, such that its largest element codes as the
// type's largest. NaN if an element is not finite: then the vector reads back as NaN, and the error
// is seen.
uint16_t kv_scale(const float* x, int head_size, tensor::DType dtype);

// One element. scale: from kv_scale, as float.
uint8_t kv_code(float x, float scale, tensor::DType dtype);
float kv_decode(uint8_t code, float scale, tensor::DType dtype);

}  // namespace pelton::kernels
