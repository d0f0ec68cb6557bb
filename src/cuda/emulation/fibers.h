// Runs a grid of blocks on the host, one thread of a block a fiber of its own: what a kernel does
// between two collectives runs alone, collectives really exchange data, and whatever would hang or
// race on a device has a chance to show itself here. Warps and lanes take turns in an order drawn
// anew for each block; shared memory starts as NaN and ends at a page that nobody may touch; a
// collective that some lanes of a warp do not reach, or reach elsewhere, ends the process. One grid
// at a time, on the caller's thread; others wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace pelton::cuda::emulation {

inline constexpr int kWarpLanes = 32;
inline constexpr int kGroupThreads = 128;  // of a warpgroup: four warps

struct Dim3 {
  int x = 1;
  int y = 1;
  int z = 1;
};

// The calling fiber's place.
struct Place {
  int thread = 0;
  Dim3 block;
  Dim3 grid;
  int block_threads = 0;
  void* shared = nullptr;
};
const Place& place();

// threads: a multiple of 32.
void run_grid(Dim3 grid, int threads, size_t shared_bytes, const std::function<void()>& kernel);

// The same for a launch that may overlap with those before it: every thread must wait for them
// (wait_for_predecessors) before it ends, and until all threads of a block have, device memory is
// closed (device_memory.h), for one block of the grid, drawn anew (of one grid in kClosedOneIn
// where there is much memory); copies must not start for any.
inline constexpr size_t kClosedAlwaysBytes = size_t{8} << 20;
inline constexpr int kClosedOneIn = 16;
void run_dependent_grid(Dim3 grid, int threads, size_t shared_bytes,
                        const std::function<void()>& kernel);
void wait_for_predecessors();
// The same with all blocks alive at once (kAliveMax at most): they take turns in an order drawn
// anew each time, each as far as it gets, so that what is read without the barrier between was
// written in one order and not in another. Blocks that wait for one that does not come end the
// process.
inline constexpr int kAliveMax = 7;
void run_cooperative_grid(Dim3 grid, int threads, size_t shared_bytes,
                          const std::function<void()>& kernel);
// How many blocks the next such grid may have: from 3 to kAliveMax, drawn.
int draw_alive();
// The grid's barrier, in two: a block counts itself, and goes on when all have. One thread of each
// block. `counter` is zero at the launch; `target`: the grid's blocks times the barriers so far.
void arrive_at_grid(uint32_t* counter);
void wait_for_grid(const uint32_t* counter, uint32_t target);

// Whether device memory is closed to the calling fiber.
bool is_memory_closed();

// Runs a launch at once, or keeps it if a graph is being recorded (runtime_emulated.cc).
void start(std::function<void()> launch);

// All lanes of the warp bring an `in` and an `out`; the last to come runs `exchange` on all 32 of
// each (by lane). `name`: what it is; all must have come for the same.
using Exchange = void (*)(const void* const* in, void* const* out);
void warp_collective(const char* name, const void* in, void* out, Exchange exchange);

// The same for the 128 threads of a warpgroup.
void group_collective(const char* name, const void* in, void* out, Exchange exchange);

// All threads of the block; `line` is the caller's, and must be the same for all.
void block_barrier(int line);

// cp.async: nothing is copied before the wait, and NaN stands there from now on, so that whoever
// forgets to wait, or still reads what was there, reads NaN.
void copy_later(void* to, const void* from, size_t bytes, size_t zero_bytes);
void close_copy_group();
void wait_for_copies(int groups_left);
// fence.proxy.async: what the calling thread's copies have brought can be read by products
// (async_products.h) of whoever meets it at a barrier.
void publish_copies();

// Shared memory as descriptors count: from a multiple of 4 096 bytes on, a little before the
// block's. The second: what stands at such an address; a fault if it is none of the block's, or if
// a copy to it is under way or not published.
const char* shared_window();
const char* published_shared(uint32_t address, size_t bytes);

// A bug in a kernel: says what and where, and ends the process.
[[noreturn]] void kernel_fault(const char* what);

// The order in which warps and lanes run from here on.
void set_seed(uint64_t seed);

// Since the process began: what a kernel cost in collectives, for tests that count.
int64_t collectives_run();

}  // namespace pelton::cuda::emulation
