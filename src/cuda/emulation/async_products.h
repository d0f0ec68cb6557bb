// wgmma on the host. EMULATED: products of a warpgroup (128 threads) whose right operand lies in
// shared memory, found by a descriptor's bits as the hardware finds it, and which run beside the
// threads until they are waited for. What a device would leave to chance ends the process: shared
// memory or registers that change under a product, shared memory that was copied to and not
// published (fence.proxy.async), products without a wgmma.fence, products nobody waits for. Sums
// are NaN until their products have been waited for.
//
// Not seen: plain stores to shared memory that are not published, and registers written between the
// fence and a product.
#pragma once

#include <cstdint>

namespace pelton::cuda::emulation {

// The address of shared memory that a descriptor holds.
uint32_t shared_address(const void* at);

void fence_products();
// c += a b for the calling thread's warpgroup: m64nNk16 with N = columns; a: four registers; c:
// columns / 2 sums, those of eight columns of b after another in the order of mma's.
void multiply_async(float* c, const uint32_t* a, uint64_t right, int columns);
void commit_products();
void wait_for_products(int groups_left);

// By fibers.cc, at a block's begin and at a thread's end.
void forget_products(int block_threads);
bool has_products_under_way(int thread);

}  // namespace pelton::cuda::emulation
