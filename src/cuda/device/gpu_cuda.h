// The primitives of device/gpu.h as CUDA has them.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

// Of a kernel's argument that is read where it lies, whichever part of it.
#define PELTON_ARGUMENT const __grid_constant__
#define PELTON_DEVICE __device__ __forceinline__
// Threads of a block; and how many blocks a multiprocessor should have registers for.
#define PELTON_KERNEL(...) __global__ void __launch_bounds__(__VA_ARGS__)

namespace pelton::cuda {

PELTON_DEVICE int thread_index() {
  return static_cast<int>(threadIdx.x);
}
PELTON_DEVICE int block_x() {
  return static_cast<int>(blockIdx.x);
}
PELTON_DEVICE int block_y() {
  return static_cast<int>(blockIdx.y);
}
PELTON_DEVICE int block_z() {
  return static_cast<int>(blockIdx.z);
}
PELTON_DEVICE int block_threads() {
  return static_cast<int>(blockDim.x);
}
PELTON_DEVICE int grid_blocks() {
  return static_cast<int>(gridDim.x);
}
extern __shared__ __align__(1024) unsigned char pelton_shared_memory[];
template <typename T>
PELTON_DEVICE T* shared_memory() {
  return reinterpret_cast<T*>(pelton_shared_memory);
}

PELTON_DEVICE void sync_block() {
  __syncthreads();
}
PELTON_DEVICE void sync_warp() {
  __syncwarp();
}

// Programmatic dependent launch (PTX griddepcontrol): kernels launched dependent may start now; and
// the kernels before are complete, and what they wrote can be seen.
PELTON_DEVICE void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
PELTON_DEVICE void wait_for_predecessors() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

PELTON_DEVICE float shuffle_xor(float value, int mask) {
  return __shfl_xor_sync(0xFFFFFFFFu, value, mask);
}
PELTON_DEVICE int shuffle_xor(int value, int mask) {
  return __shfl_xor_sync(0xFFFFFFFFu, value, mask);
}
PELTON_DEVICE int shuffle_from(int value, int from) {
  return __shfl_sync(0xFFFFFFFFu, value, from);
}
PELTON_DEVICE uint64_t shuffle_xor(uint64_t value, int mask) {
  return __shfl_xor_sync(0xFFFFFFFFu, static_cast<unsigned long long>(value), mask);
}
PELTON_DEVICE uint64_t shuffle_from(uint64_t value, int from) {
  return __shfl_sync(0xFFFFFFFFu, static_cast<unsigned long long>(value), from);
}
PELTON_DEVICE uint32_t vote(bool value) {
  return __ballot_sync(0xFFFFFFFFu, value);
}
PELTON_DEVICE int count_bits(uint32_t bits) {
  return __popc(bits);
}

PELTON_DEVICE int leading_zeros(uint32_t bits) {
  return __clz(static_cast<int>(bits));
}
PELTON_DEVICE uint32_t float_bits(float value) {
  return __float_as_uint(value);
}
PELTON_DEVICE float float_of(uint32_t bits) {
  return __uint_as_float(bits);
}

PELTON_DEVICE uint32_t atomic_add(uint32_t* to, uint32_t value) {
  return atomicAdd(to, value);
}
PELTON_DEVICE uint32_t atomic_max(uint32_t* to, uint32_t value) {
  return atomicMax(to, value);
}
PELTON_DEVICE uint64_t atomic_add(uint64_t* to, uint64_t value) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(to),
                   static_cast<unsigned long long>(value));
}
PELTON_DEVICE uint64_t atomic_max(uint64_t* to, uint64_t value) {
  return atomicMax(reinterpret_cast<unsigned long long*>(to),
                   static_cast<unsigned long long>(value));
}
PELTON_DEVICE void fence_device() {
  __threadfence();
}
PELTON_DEVICE uint32_t load_fresh(const uint32_t* from) {
  return __ldcg(from);
}
PELTON_DEVICE uint64_t load_fresh(const uint64_t* from) {
  return __ldcg(reinterpret_cast<const unsigned long long*>(from));
}

// A barrier of a grid whose blocks are all alive, by one thread of each block, between barriers of
// the block: what was written before an arrival is seen after the wait. The counter only grows.
PELTON_DEVICE void arrive_at_grid(uint32_t* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
PELTON_DEVICE void wait_for_grid(const uint32_t* counter, uint32_t target) {
  uint32_t arrived;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(arrived) : "l"(counter) : "memory");
  } while (static_cast<int32_t>(arrived - target) < 0);
}

PELTON_DEVICE float low_bf16(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
PELTON_DEVICE float high_bf16(uint32_t pair) {
  return __uint_as_float(pair & 0xFFFF0000u);
}
PELTON_DEVICE uint16_t to_bf16(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}
PELTON_DEVICE uint32_t pack_bf16(float low, float high) {
  uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
// Beyond float16's range its largest, as on the host (tensor/bits.h).
PELTON_DEVICE uint16_t to_f16(float value) {
  if (value > 65504.0f) value = 65504.0f;  // comparisons that NaN fails
  if (value < -65504.0f) value = -65504.0f;
  return __half_as_ushort(__float2half_rn(value));
}
PELTON_DEVICE float f16_to_float(uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}
// Of numbers within the range.
PELTON_DEVICE uint32_t pack_f16(float low, float high) {
  uint32_t out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
PELTON_DEVICE uint32_t multiply_bf16x2(uint32_t a, uint32_t b) {
  uint32_t out;
#if __CUDA_ARCH__ >= 900
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
#else  // a b - 0: the zero is negative, so that a product of -0 stays what it is
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(0x80008000u));
#endif
  return out;
}

PELTON_DEVICE void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

PELTON_DEVICE void mma_f16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

struct alignas(16) Words4 {
  uint32_t word[4];
};
struct alignas(8) Words2 {
  uint32_t word[2];
};
PELTON_DEVICE Words4 load_weights(const Words4* from) {
  Words4 out;
  asm("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(out.word[0]), "=r"(out.word[1]), "=r"(out.word[2]), "=r"(out.word[3])
      : "l"(from));
  return out;
}
PELTON_DEVICE uint32_t load_weights(const uint32_t* from) {
  uint32_t out;
  asm("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(out) : "l"(from));
  return out;
}
// Asks for weights to be brought to the L2 cache. All lanes of a warp; multiples of 16 bytes.
PELTON_DEVICE void prefetch_weights(const void* from, int bytes) {
#if __CUDA_ARCH__ >= 900
  if (thread_index() % 32 == 0 && bytes > 0) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes));
  }
#else
  for (int i = thread_index() % 32 * 128; i < bytes; i += 32 * 128) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(from) + i));
  }
#endif
}
PELTON_DEVICE Words4 load(const Words4* from) {
  const uint4 got = *reinterpret_cast<const uint4*>(from);
  return {{got.x, got.y, got.z, got.w}};
}
PELTON_DEVICE Words2 load(const Words2* from) {
  const uint2 got = *reinterpret_cast<const uint2*>(from);
  return {{got.x, got.y}};
}

// Four matrices of eight rows of 16 bytes from shared memory: lane l brings the address of row l %
// 8 of matrix l / 8, and has of each matrix word l % 4 of row l / 4.
PELTON_DEVICE Words4 load_matrices(const void* row) {
  Words4 out;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out.word[0]), "=r"(out.word[1]), "=r"(out.word[2]), "=r"(out.word[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
  return out;
}

PELTON_DEVICE void copy_async(void* to, const void* from, bool valid) {
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
PELTON_DEVICE void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kGroupsLeft>
PELTON_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroupsLeft) : "memory");
}

PELTON_DEVICE float fused(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
PELTON_DEVICE float power_of_2(float x) {
  return exp2f(x);
}
PELTON_DEVICE float exponential(float x) {
  return expf(x);
}
PELTON_DEVICE float inverse_root(float x) {
  return __frsqrt_rn(x);
}
PELTON_DEVICE float maximum(float a, float b) {
  return fmaxf(a, b);
}
PELTON_DEVICE float minimum(float a, float b) {
  return fminf(a, b);
}
PELTON_DEVICE float minus_infinity() {
  return __uint_as_float(0xFF800000u);
}

}  // namespace pelton::cuda

#include "cuda/device/async_products_cuda.h"
