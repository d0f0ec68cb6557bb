#include "kernels/latent_rows.h"

#include <cstring>

#include "base/check.h"
#include "kernels/kv_quantization.h"
#include "tensor/bits.h"

namespace pelton::kernels {
namespace {

using tensor::DType;

char* block_of(const KvLayer& cache, int32_t block) {
  return static_cast<char*>(cache.data) + block * cache.block_bytes();
}

template <typename T>
T* row_of(const KvLayer& cache, int32_t block, int slot) {
  return reinterpret_cast<T*>(block_of(cache, block)) + int64_t{slot} * cache.head_size;
}

// Of one-byte types: behind the block's rows.
uint16_t* scale_of(const KvLayer& cache, int32_t block, int slot) {
  const int64_t rows = int64_t{cache.block_tokens} * cache.head_size;
  return reinterpret_cast<uint16_t*>(block_of(cache, block) + rows) + slot;
}

void write_scaled(const KvLayer& cache, int32_t block, int slot, const float* row) {
  const int size = cache.head_size;
  float rotated[kLatentWidthMax];
  std::memcpy(rotated, row, static_cast<size_t>(size) * sizeof(float));
  if (kv_is_rotated(cache.dtype)) hadamard_transform(rotated, size);
  const uint16_t scale = kv_scale(rotated, size, cache.dtype);
  *scale_of(cache, block, slot) = scale;
  auto* codes = row_of<uint8_t>(cache, block, slot);
  for (int i = 0; i < size; ++i) {
    codes[i] = quantize_kv(rotated[i], tensor::bf16_to_float(scale), cache.dtype);
  }
}

void read_scaled(const KvLayer& cache, int32_t block, int slot, float* row) {
  const int size = cache.head_size;
  const float scale = tensor::bf16_to_float(*scale_of(cache, block, slot));
  const auto* codes = row_of<uint8_t>(cache, block, slot);
  for (int i = 0; i < size; ++i) row[i] = dequantize_kv(codes[i], scale, cache.dtype);
  if (!kv_is_rotated(cache.dtype)) return;
  hadamard_transform(row, size);
  const float inverse = 1.0f / static_cast<float>(hadamard_size(size));
  for (int i = 0; i < size; ++i) row[i] *= inverse;
}

}  // namespace

void write_latent_row(const KvLayer& cache, int32_t block, int slot, const float* row) {
  const int size = cache.head_size;
  CHECK(cache.latent && size <= kLatentWidthMax);
  switch (cache.dtype) {
    case DType::kF32:
      std::memcpy(row_of<float>(cache, block, slot), row, static_cast<size_t>(size) * sizeof *row);
      return;
    case DType::kF16:
      for (int i = 0; i < size; ++i) {
        row_of<uint16_t>(cache, block, slot)[i] = tensor::float_to_f16(row[i]);
      }
      return;
    case DType::kBf16:
      for (int i = 0; i < size; ++i) {
        row_of<uint16_t>(cache, block, slot)[i] = tensor::float_to_bf16(row[i]);
      }
      return;
    default:
      write_scaled(cache, block, slot, row);
  }
}

void read_latent_row(const KvLayer& cache, int32_t block, int slot, float* row) {
  const int size = cache.head_size;
  switch (cache.dtype) {
    case DType::kF32:
      std::memcpy(row, row_of<float>(cache, block, slot), static_cast<size_t>(size) * sizeof *row);
      return;
    case DType::kF16:
      for (int i = 0; i < size; ++i) {
        row[i] = tensor::f16_to_float(row_of<uint16_t>(cache, block, slot)[i]);
      }
      return;
    case DType::kBf16:
      for (int i = 0; i < size; ++i) {
        row[i] = tensor::bf16_to_float(row_of<uint16_t>(cache, block, slot)[i]);
      }
      return;
    default:
      read_scaled(cache, block, slot, row);
  }
}

}  // namespace pelton::kernels
