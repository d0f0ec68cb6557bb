// Reads every weight of an opened checkpoint and looks for what no sound model holds: NaN and
// infinity, and the E8M0 scale 255, which is NaN. The caller's thread owns the
// pool.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"

namespace pelton::checkpoint {

struct WeightFault {
  std::string tensor;
  std::string what;   // "NaN or infinity", "E8M0 scale 255 (NaN)"
  int64_t count = 0;  // of elements or scales
  int64_t first = 0;  // index of the first
};

// By tensor name. progress(bytes done, bytes in all) is called from the caller's thread.
std::vector<WeightFault> check_weights(const Checkpoint& checkpoint, base::ThreadPool& pool,
                                       base::FunctionRef<void(int64_t, int64_t)> progress);

}  // namespace pelton::checkpoint
