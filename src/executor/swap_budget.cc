#include "executor/swap_budget.h"

#include <algorithm>

namespace pelton::executor {

models::KvStorage::Options plan_swap(const checkpoint::ModelConfig& config,
                                     const models::KvStorage::Options& device, int64_t bytes) {
  const int64_t full_bytes = models::KvStorage::full_block_bytes(config, device);
  const int64_t window_bytes = models::KvStorage::window_block_bytes(config, device);
  const int64_t full = device.full_block_count;
  const int64_t window = device.window_block_count;
  const double device_bytes = static_cast<double>(full * full_bytes + window * window_bytes);
  const double share =
      static_cast<double>(std::max<int64_t>(bytes, 0)) / std::max(device_bytes, 1.0);

  models::KvStorage::Options host = device;
  host.full_block_count = 0;
  host.window_block_count = 0;
  const int64_t window_count = static_cast<int64_t>(share * static_cast<double>(window));
  if (window_count < 1) return host;
  // What rounding left goes to the full layers, whose need has no bound.
  const int64_t left = bytes - window_count * window_bytes;
  const int64_t full_count =
      full_bytes > 0 ? left / full_bytes : static_cast<int64_t>(share * static_cast<double>(full));
  if (full_count < 1) return host;
  host.full_block_count = static_cast<int>(std::min<int64_t>(full_count, INT32_MAX));
  host.window_block_count = static_cast<int>(std::min<int64_t>(window_count, INT32_MAX));
  return host;
}

}  // namespace pelton::executor
