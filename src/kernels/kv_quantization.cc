#include "kernels/kv_quantization.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "tensor/bits.h"

namespace pelton::kernels {

using tensor::DType;

bool kv_is_rotated(DType dtype) {
  return dtype == DType::kI8;
}

int hadamard_size(int head_size) {
  return head_size & -head_size;
}

void hadamard_transform(float* x, int head_size) {
  const int size = hadamard_size(head_size);
  for (int step = 1; step < size; step *= 2) {
    for (int i = 0; i < head_size; ++i) {
      if ((i & step) != 0) continue;
      const float a = x[i];
      const float b = x[i + step];
      x[i] = a + b;
      x[i + step] = a - b;
    }
  }
}

uint16_t kv_scale(const float* x, int head_size, DType dtype) {
  // As integers, magnitudes are in order, with infinity and NaN at the end.
  uint32_t largest = 0;
  for (int i = 0; i < head_size; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFu);
  }
  return dtype == DType::kI8 ? kv_scale_of(largest, 1.0f / 127) : kv_fp8_scale(largest);
}

uint8_t quantize_kv(float x, float scale, DType dtype) {
  if (dtype == DType::kF8E4m3) return quantize_kv_fp8(x, scale);
  CHECK(dtype == DType::kI8);
  if (std::isnan(scale)) return 0;
  const float scaled = x * (1.0f / scale);
  return static_cast<uint8_t>(static_cast<int8_t>(std::nearbyintf(scaled)));
}

float dequantize_kv(uint8_t code, float scale, DType dtype) {
  if (dtype == DType::kF8E4m3) return tensor::e4m3_to_float(code) * scale;
  return static_cast<float>(static_cast<int8_t>(code)) * scale;
}

}  // namespace pelton::kernels
