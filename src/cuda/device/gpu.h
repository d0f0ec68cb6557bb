// What kernels are written with: thread and block indices, barriers, warp shuffles, the tensor
// core's mma.sync, asynchronous copies, bf16 and float16. One source, two compilers: nvcc makes
// instructions of it, g++ the emulation that ./test runs every kernel in
// (emulation/gpu_emulated.h).
//
// Contraction of a*b+c is off for both (-fmad=false): where two roundings become one, the source
// says fused(), so that a kernel gives the same bits whatever template it is part of.
#pragma once

#if defined(__CUDACC__)
#include "cuda/device/gpu_cuda.h"
#else
#include "cuda/emulation/gpu_emulated.h"
#endif
