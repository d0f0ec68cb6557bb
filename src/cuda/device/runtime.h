// The part of a device's runtime that the library uses, as CUDA and the emulation have it. A call
// that fails leaves a message (take_failure) and the rest goes on as if nothing were; whoever
// started a piece of work asks at its end. One thread per device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "cuda/device_abi.h"

namespace pelton::cuda {

using Stream = void*;

// Whether the library has code for a GPU with wgmma (sm_90a).
#if defined(__CUDACC__) && !defined(PELTON_CUDA_HAS_SM90A)
inline constexpr bool kCompilesWideConfigs = false;
#else
inline constexpr bool kCompilesWideConfigs = true;
#endif

// The first failure since it was last asked for; empty: none.
std::string take_failure();
void note_failure(const std::string& what);

int device_count();  // 0 with a failure noted if there is no driver
DeviceInfo device_info(int index);
// The current device, and what this library was compiled for.
KernelDevice config_device();

// Whether the current device lets kernels start before those before them end.
bool overlaps_launches();

// Whether the current device can run grids whose blocks are all alive at once.
bool launches_cooperatively();
int multiprocessor_count();

void use_device(int index);
Stream make_stream();
void end_stream(Stream stream);

// Device memory; null with a failure noted.
void* allocate(int64_t bytes);
void release(void* memory);
// The first `bytes` of some device memory are what no kernel of a step writes.
void declare_weights(void* memory, int64_t bytes);
// Host memory that copies run beside.
void* allocate_pinned(int64_t bytes);
void release_pinned(void* memory);

void copy_to_device(Stream stream, void* to, const void* from, int64_t bytes);
// The same from pinned memory that stays as it is until the copy has been waited for: the host goes
// on meanwhile.
void copy_to_device_later(Stream stream, void* to, const void* from, int64_t bytes);
void copy_to_host(Stream stream, void* to, const void* from, int64_t bytes);
void copy_on_device(Stream stream, void* to, const void* from, int64_t bytes);
void fill(Stream stream, void* to, uint8_t value, int64_t bytes);
void wait_for(Stream stream);

// What is launched between the two is recorded instead of run. Null: that failed.
using Graph = void*;
void begin_recording(Stream stream);
Graph end_recording(Stream stream);
void run_graph(Stream stream, Graph graph);
void end_graph(Graph graph);
bool records_graphs();

// Time on the device between two marks, in seconds; a mark is made once and set again and again.
using Mark = void*;
Mark make_mark();
void set_mark(Stream stream, Mark mark);
double seconds_between(Mark first, Mark second);  // waits for both
bool wait_for_mark(Mark mark);  // until all before it is done; false: a failure noted
bool is_past(Mark mark);
void end_mark(Mark mark);

}  // namespace pelton::cuda
