// Starting a kernel, on a device or in the emulation.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/runtime.h"

namespace pelton::kernels::gpu {

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
enum class Start { kAfter, kDependent };

#if defined(__CUDACC__)

template <typename... P>
void launch(Start start, Stream stream, void (*kernel)(P...), Grid grid, int threads,
            int64_t shared_bytes, typename AsGiven<P>::Type... args) {
  if (shared_bytes > (48 << 10)) {
    const cudaError_t raised = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                    static_cast<int>(shared_bytes));
    if (raised != cudaSuccess) {
      note_failure(std::string("shared memory of a kernel: ") + cudaGetErrorString(raised));
    }
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
                        static_cast<unsigned>(grid.z));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &overlap;
  config.numAttrs = start == Start::kDependent && overlaps_launches() ? 1 : 0;
  const cudaError_t started = cudaLaunchKernelEx(&config, kernel, std::move(args)...);
  if (started != cudaSuccess) {
    note_failure(std::string("starting a kernel: ") + cudaGetErrorString(started));
  }
}

#else

// Copies what the kernel gets, as a recorded graph does: later changes of the caller's are not
// seen.
template <typename... P>
void launch(Start start, Stream, void (*kernel)(P...), Grid grid, int threads, int64_t shared_bytes,
            typename AsGiven<P>::Type... args) {
  const emulation::Dim3 blocks{static_cast<int>(grid.x), static_cast<int>(grid.y),
                               static_cast<int>(grid.z)};
  const auto run = start == Start::kDependent ? emulation::run_dependent_grid : emulation::run_grid;
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

}  // namespace pelton::kernels::gpu
