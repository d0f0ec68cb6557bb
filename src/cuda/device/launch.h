// Starting a kernel, on a device or in the emulation.
#pragma once

#include <cstdint>
#include <utility>

#include "cuda/device/gpu.h"
#include "cuda/device/runtime.h"

namespace pelton::cuda {

struct Grid {
  int64_t x = 1;
  int64_t y = 1;
  int64_t z = 1;
};

template <typename T>
struct AsGiven {
  using Type = T;
};

// Whether a kernel may start while those before it on its stream still run. One that may must wait
// for them (wait_for_predecessors) before it touches anything of the step but weights.
// kCooperative: its blocks are all alive at once, so many that resident_blocks says.
enum class Start { kAfter, kDependent, kCooperative };

#if defined(__CUDACC__)

inline void take_shared(const void* kernel, int64_t bytes) {
  if (bytes <= (48 << 10)) return;
  const cudaError_t raised = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (raised != cudaSuccess) {
    note_failure(std::string("shared memory of a kernel: ") + cudaGetErrorString(raised));
  }
}

// Blocks that can be alive at once on the current device, `each_max` on a multiprocessor at most;
// 0: none.
template <typename... P>
int resident_blocks(void (*kernel)(P...), int threads, int64_t shared_bytes, int each_max) {
  if (!launches_cooperatively() || shared_bytes > config_device().shared_bytes_max) return 0;
  take_shared(reinterpret_cast<const void*>(kernel), shared_bytes);
  int each = 0;
  const cudaError_t asked = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &each, kernel, threads, static_cast<size_t>(shared_bytes));
  if (asked != cudaSuccess) {
    note_failure(std::string("asking how many blocks a kernel can have: ") +
                 cudaGetErrorString(asked));
  }
  return multiprocessor_count() * (each < each_max ? each : each_max);
}

template <typename... P>
void launch(Start start, Stream stream, void (*kernel)(P...), Grid grid, int threads,
            int64_t shared_bytes, typename AsGiven<P>::Type... args) {
  take_shared(reinterpret_cast<const void*>(kernel), shared_bytes);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
                        static_cast<unsigned>(grid.z));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute attribute = {};
  if (start == Start::kCooperative) {
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
  } else {
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  config.attrs = &attribute;
  const bool is_plain =
      start == Start::kAfter || (start == Start::kDependent && !overlaps_launches());
  config.numAttrs = is_plain ? 0 : 1;
  const cudaError_t started = cudaLaunchKernelEx(&config, kernel, std::move(args)...);
  if (started != cudaSuccess) {
    note_failure(std::string("starting a kernel: ") + cudaGetErrorString(started));
  }
}

#else

template <typename... P>
int resident_blocks(void (*)(P...), int, int64_t shared_bytes, int) {
  return shared_bytes <= config_device().shared_bytes_max ? emulation::draw_alive() : 0;
}

// Copies what the kernel gets, as a recorded graph does: later changes of the caller's are not
// seen.
template <typename... P>
void launch(Start start, Stream, void (*kernel)(P...), Grid grid, int threads, int64_t shared_bytes,
            typename AsGiven<P>::Type... args) {
  const emulation::Dim3 blocks{static_cast<int>(grid.x), static_cast<int>(grid.y),
                               static_cast<int>(grid.z)};
  const auto run = start == Start::kCooperative ? emulation::run_cooperative_grid
                   : start == Start::kDependent ? emulation::run_dependent_grid
                                                : emulation::run_grid;
  emulation::start(
      [=] { run(blocks, threads, static_cast<size_t>(shared_bytes), [&] { kernel(args...); }); });
}

#endif

// In the order of the stream, each after the one before.
template <typename... P>
void launch(Stream stream, void (*kernel)(P...), Grid grid, int threads, int64_t shared_bytes,
            typename AsGiven<P>::Type... args) {
  launch(Start::kAfter, stream, kernel, grid, threads, shared_bytes, std::move(args)...);
}
template <typename... P>
void launch_dependent(Stream stream, void (*kernel)(P...), Grid grid, int threads,
                      int64_t shared_bytes, typename AsGiven<P>::Type... args) {
  launch(Start::kDependent, stream, kernel, grid, threads, shared_bytes, std::move(args)...);
}
template <typename... P>
void launch_cooperative(Stream stream, void (*kernel)(P...), int blocks, int threads,
                        int64_t shared_bytes, typename AsGiven<P>::Type... args) {
  launch(Start::kCooperative, stream, kernel, {.x = blocks}, threads, shared_bytes,
         std::move(args)...);
}

}  // namespace pelton::cuda
