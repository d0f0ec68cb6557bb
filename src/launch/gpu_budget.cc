#include "launch/gpu_budget.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace pelton::launch {
namespace {

int whole(int64_t gpus, int gpus_each) {
  return static_cast<int>(std::max<int64_t>(gpus, 0) / gpus_each);
}

}  // namespace

std::vector<GpuShare> share_gpus(int gpus_max, std::span<const GpuUser> users) {
  int64_t kept = 0;  // by those behind
  int64_t used = 0;
  for (const GpuUser& one : users) {
    kept += int64_t{one.least} * one.gpus_each;
    used += int64_t{one.running} * one.gpus_each;
  }
  int64_t taken = 0;  // by those before
  std::vector<GpuShare> shares;
  for (const GpuUser& one : users) {
    kept -= int64_t{one.least} * one.gpus_each;
    if (one.gpus_each == 0) {
      constexpr int kAll = std::numeric_limits<int>::max();
      shares.push_back({.most = kAll, .room = kAll});
      continue;
    }
    shares.push_back({.most = std::max(whole(gpus_max - taken - kept, one.gpus_each), one.least),
                      .room = whole(gpus_max - used, one.gpus_each)});
    taken += int64_t{std::max(one.wanted, one.least)} * one.gpus_each;
  }
  return shares;
}

}  // namespace pelton::launch
