// The primitives of device/gpu.h on the host. EMULATED: warp shuffles, ballots, mma.sync, cp.async,
// barriers, bf16x2 arithmetic. The products of a tensor core are added here one after the other in
// float32; a device adds them in an order and with a precision that nobody documents, so results
// agree to rounding and not to the bit.
#pragma once

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "cuda/device/matrix_descriptor.h"
#include "cuda/emulation/async_products.h"
#include "cuda/emulation/device_memory.h"
#include "cuda/emulation/fibers.h"
#include "tensor/bits.h"

#define PELTON_ARGUMENT const
#define PELTON_DEVICE inline
#define PELTON_KERNEL(...) void

namespace pelton::cuda {

inline int thread_index() {
  return emulation::place().thread;
}
inline int block_x() {
  return emulation::place().block.x;
}
inline int block_y() {
  return emulation::place().block.y;
}
inline int block_z() {
  return emulation::place().block.z;
}
inline int block_threads() {
  return emulation::place().block_threads;
}
inline int grid_blocks() {
  return emulation::place().grid.x;
}
template <typename T>
T* shared_memory() {
  return static_cast<T*>(emulation::place().shared);
}

inline void sync_block(int line = __builtin_LINE()) {
  emulation::block_barrier(line);
}
inline void sync_warp() {
  emulation::warp_collective("syncwarp", nullptr, nullptr, [](const void* const*, void* const*) {});
}

// Programmatic dependent launch. Whoever was launched dependent reads and writes nothing that other
// kernels of the step write or read before it has waited; weights it may load.
inline void launch_dependents() {}
inline void wait_for_predecessors() {
  emulation::wait_for_predecessors();
}

namespace emulated {
template <typename T>
struct Shuffle {
  T value;
  int from;
};
template <typename T>
T shuffle(T value, int from) {
  const Shuffle<T> in{value, from};
  T out;
  emulation::warp_collective("shfl", &in, &out, [](const void* const* ins, void* const* outs) {
    for (int lane = 0; lane < emulation::kWarpLanes; ++lane) {
      const int from_lane = static_cast<const Shuffle<T>*>(ins[lane])->from;
      *static_cast<T*>(outs[lane]) = static_cast<const Shuffle<T>*>(ins[from_lane])->value;
    }
  });
  return out;
}
}  // namespace emulated

// The value that lane (own ^ mask) or lane `from` brings.
inline float shuffle_xor(float value, int mask) {
  return emulated::shuffle(value, (thread_index() & 31) ^ mask);
}
inline int shuffle_xor(int value, int mask) {
  return emulated::shuffle(value, (thread_index() & 31) ^ mask);
}
inline int shuffle_from(int value, int from) {
  return emulated::shuffle(value, from);
}
inline uint64_t shuffle_xor(uint64_t value, int mask) {
  return emulated::shuffle(value, (thread_index() & 31) ^ mask);
}
inline uint64_t shuffle_from(uint64_t value, int from) {
  return emulated::shuffle(value, from);
}
inline uint32_t vote(bool value) {
  uint32_t out = 0;
  emulation::warp_collective("vote.ballot", &value, &out,
                             [](const void* const* ins, void* const* outs) {
                               uint32_t bits = 0;
                               for (int lane = 0; lane < emulation::kWarpLanes; ++lane) {
                                 if (*static_cast<const bool*>(ins[lane]))
                                   bits |= uint32_t{1} << lane;
                               }
                               for (int lane = 0; lane < emulation::kWarpLanes; ++lane) {
                                 *static_cast<uint32_t*>(outs[lane]) = bits;
                               }
                             });
  return out;
}
inline int count_bits(uint32_t bits) {
  return std::popcount(bits);
}

inline int leading_zeros(uint32_t bits) {
  return std::countl_zero(bits);
}
inline uint32_t float_bits(float value) {
  return std::bit_cast<uint32_t>(value);
}
inline float float_of(uint32_t bits) {
  return std::bit_cast<float>(bits);
}

// What was there before. One thread runs at a time: nothing can come between.
template <typename T>
T atomic_add(T* to, T value) {
  const T before = *to;
  *to += value;
  return before;
}
template <typename T>
T atomic_max(T* to, T value) {
  const T before = *to;
  if (value > before) *to = value;
  return before;
}
// What this thread wrote is seen by whoever sees what it writes from here on.
inline void fence_device() {}
// Past the caches that another block's writes do not reach.
template <typename T>
T load_fresh(const T* from) {
  return *from;
}

// A barrier of a grid whose blocks are all alive, by one thread of each.
inline void arrive_at_grid(uint32_t* counter) {
  emulation::arrive_at_grid(counter);
}
inline void wait_for_grid(const uint32_t* counter, uint32_t target) {
  emulation::wait_for_grid(counter, target);
}

inline float low_bf16(uint32_t pair) {
  return std::bit_cast<float>(pair << 16);
}
inline float high_bf16(uint32_t pair) {
  return std::bit_cast<float>(pair & 0xFFFF0000u);
}
inline uint16_t to_bf16(float value) {
  return tensor::float_to_bf16(value);
}
inline uint32_t pack_bf16(float low, float high) {
  return uint32_t{to_bf16(low)} | uint32_t{to_bf16(high)} << 16;
}
inline uint16_t to_f16(float value) {
  return tensor::float_to_f16(value);
}
inline float f16_to_float(uint16_t bits) {
  return tensor::f16_to_float(bits);
}
inline uint32_t pack_f16(float low, float high) {
  return uint32_t{to_f16(low)} | uint32_t{to_f16(high)} << 16;
}
inline uint32_t multiply_bf16x2(uint32_t a, uint32_t b) {
  return pack_bf16(low_bf16(a) * low_bf16(b), high_bf16(a) * high_bf16(b));
}

// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 (and .f16.f16): c += a b. With g = lane / 4,
// t = lane % 4: a[0], a[1]: rows g, g + 8, columns 2t, 2t + 1; a[2], a[3]: the same with columns +
// 8; b[0], b[1]: column g, rows 2t, 2t + 1 and those + 8; c[0], c[1]: row g, columns 2t, 2t + 1;
// c[2], c[3]: row g + 8.
template <float (*kNumber)(uint16_t)>
void multiply_add(const char* name, float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  struct In {
    const uint32_t* a;
    const uint32_t* b;
  };
  const In in{a, b};
  emulation::warp_collective(name, &in, c, [](const void* const* ins, void* const* outs) {
    float x[16][16];
    float y[8][16];
    for (int lane = 0; lane < 32; ++lane) {
      const In& from = *static_cast<const In*>(ins[lane]);
      const int g = lane / 4;
      const int t = lane % 4;
      for (int half = 0; half < 2; ++half) {
        for (int row = 0; row < 2; ++row) {
          const uint32_t pair = from.a[2 * half + row];
          x[g + 8 * row][8 * half + 2 * t] = kNumber(static_cast<uint16_t>(pair));
          x[g + 8 * row][8 * half + 2 * t + 1] = kNumber(static_cast<uint16_t>(pair >> 16));
        }
        y[g][8 * half + 2 * t] = kNumber(static_cast<uint16_t>(from.b[half]));
        y[g][8 * half + 2 * t + 1] = kNumber(static_cast<uint16_t>(from.b[half] >> 16));
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      float* const to = static_cast<float*>(outs[lane]);
      for (int i = 0; i < 4; ++i) {
        const float* const row = x[lane / 4 + 8 * (i / 2)];
        const float* const column = y[2 * (lane % 4) + i % 2];
        float sum = 0;
        for (int k = 0; k < 16; ++k) sum += row[k] * column[k];
        to[i] += sum;
      }
    }
  });
}
inline void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  multiply_add<tensor::bf16_to_float>("mma", c, a, b);
}
inline void mma_f16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  multiply_add<f16_to_float>("mma_f16", c, a, b);
}

struct alignas(16) Words4 {
  uint32_t word[4];
};
struct alignas(8) Words2 {
  uint32_t word[2];
};
// Weights: read once by this kernel and changed by none.
namespace emulated {
template <typename T>
T aligned_load(const T* from) {
  if (reinterpret_cast<uintptr_t>(from) % sizeof(T) != 0) {
    emulation::kernel_fault("a load is not aligned");
  }
  return *from;
}
template <typename T>
const T* weights_at(const T* from) {
  if (!emulation::is_memory_closed()) return from;
  return static_cast<const T*>(emulation::weights_behind(from));
}
}  // namespace emulated
inline Words4 load_weights(const Words4* from) {
  return emulated::aligned_load(emulated::weights_at(from));
}
inline uint32_t load_weights(const uint32_t* from) {
  return emulated::aligned_load(emulated::weights_at(from));
}
// Does nothing but look at what is asked for.
inline void prefetch_weights(const void* from, int bytes) {
  if (reinterpret_cast<uintptr_t>(from) % 16 != 0 || bytes % 16 != 0) {
    emulation::kernel_fault("a prefetch is not aligned");
  }
  if (bytes <= 0) return;
  emulation::weights_behind(from);
  emulation::weights_behind(static_cast<const char*>(from) + bytes - 1);
}
inline Words4 load(const Words4* from) {
  return emulated::aligned_load(from);
}
inline Words2 load(const Words2* from) {
  return emulated::aligned_load(from);
}

// ldmatrix.sync.aligned.m8n8.x4.b16: four matrices of eight rows of 16 bytes. Lane l brings the
// address of row l % 8 of matrix l / 8, and has of each matrix word l % 4 of row l / 4.
inline Words4 load_matrices(const void* row) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) {
    emulation::kernel_fault("a row of a matrix is not aligned");
  }
  Words4 out;
  emulation::warp_collective("ldmatrix", row, &out, [](const void* const* ins, void* const* outs) {
    for (int lane = 0; lane < emulation::kWarpLanes; ++lane) {
      for (int matrix = 0; matrix < 4; ++matrix) {
        const char* const from = static_cast<const char*>(ins[8 * matrix + lane / 4]);
        std::memcpy(&static_cast<Words4*>(outs[lane])->word[matrix], from + lane % 4 * 4, 4);
      }
    }
  });
  return out;
}

// 16 bytes from global to shared memory, there after wait_copies; zeros if not `valid`.
inline void copy_async(void* to, const void* from, bool valid) {
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0) {
    emulation::kernel_fault("a copy is not aligned");
  }
  emulation::copy_later(to, from, valid ? 16 : 0, valid ? 0 : 16);
}
inline void commit_copies() {
  emulation::close_copy_group();
}
template <int kGroupsLeft>
inline void wait_copies() {
  emulation::wait_for_copies(kGroupsLeft);
}

// Products of a warpgroup that run beside its threads (async_products.h).
inline constexpr bool kHasAsyncProducts = true;
// The descriptor of rows in shared memory, of 128 bytes each.
inline uint64_t matrix_at(const void* first_row) {
  return matrix_descriptor(emulation::shared_address(first_row));
}
// What own copies have brought to shared memory can be read by products of whoever is met at a
// barrier after this.
inline void publish_copies() {
  emulation::publish_copies();
}
// Registers written before this can be read by products after it; all that begin after a wait need
// one.
inline void fence_products() {
  emulation::fence_products();
}
// c += a b, of 64 rows and 8 kColumnTiles columns: a as mma has it, warp w of the four with rows
// 16w to 16w + 15; c[n] as mma has its sums of columns 8n to 8n + 7; right: 16 columns of those
// rows in shared memory. None of the three may be touched before this has been waited for, but by
// further products that add to c.
template <int kColumnTiles>
void multiply_async(float (&c)[kColumnTiles][4], const uint32_t (&a)[4], uint64_t right) {
  static_assert(kColumnTiles == 8 || kColumnTiles == 16);
  emulation::multiply_async(c[0], a, right, 8 * kColumnTiles);
}
// Products begun since the last commit are a group; all but the latest groups are waited for.
inline void commit_products() {
  emulation::commit_products();
}
template <int kGroupsLeft>
inline void wait_products() {
  emulation::wait_for_products(kGroupsLeft);
}
// Waits for all products; then the sums can be read.
template <int kColumnTiles>
void finish_products(float (&)[kColumnTiles][4]) {
  emulation::wait_for_products(0);
}

inline float fused(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline float power_of_2(float x) {
  return std::exp2(x);
}
inline float exponential(float x) {
  return std::exp(x);
}
inline float inverse_root(float x) {
  return 1.0f / std::sqrt(x);
}
inline float maximum(float a, float b) {
  return std::fmax(a, b);
}
inline float minimum(float a, float b) {
  return std::fmin(a, b);
}
inline float minus_infinity() {
  return -std::numeric_limits<float>::infinity();
}

}  // namespace pelton::cuda
