// "Device memory" of the emulation: the host's, ending at a page that nobody may touch, and mapped
// twice. Until a kernel that was launched to overlap with the ones before it has waited for them
// (wait_for_predecessors), the first mapping can be closed: whoever touches it then has read what
// may not be written yet, or written what may still be read, and ends the process. Weights, which
// no kernel of a step writes, can be read from the second mapping meanwhile.
#pragma once

#include <cstddef>
#include <mutex>

namespace pelton::cuda::emulation {

// Poisoned: NaN as float and as bf16. Null: the host has none left. Any thread.
void* take_memory(size_t bytes);
// The same for pinned memory, which is the host's and stays open.
void* take_open_memory(size_t bytes);
void give_memory(void* memory);

// The first `bytes` of what take_memory gave hold weights: nothing else of it may be read as such
// while it is closed. Memory of which nothing was declared may be all weights.
void declare_weights(const void* memory, size_t bytes);

// Held by whoever touches device memory from outside a kernel, and while a grid runs.
std::mutex& memory_in_use();

void close_memory();
void open_memory();
// What closing takes away: it takes time for every page.
size_t closable_bytes();
// Where the weights at an address can be read while memory is closed; the address itself if it is
// not of this memory.
const void* weights_behind(const void* address);

}  // namespace pelton::cuda::emulation
