// The plain twin of every kernel: float32 in and out, sums in double, no tricks. What the fast
// kernels are tested against; also what `--kernels reference` runs. Threads: as kernels/kernels.h.
#pragma once

#include <memory>

#include "kernels/kernels.h"

namespace pelton::kernels {

std::unique_ptr<Kernels> make_reference_kernels(base::ThreadPool& pool);

}  // namespace pelton::kernels
