// GPUs that several pools have together: how many replicas that leaves to each. Who comes first
// takes what it needs, but for what those behind it are never to fall below. Pure.
#pragma once

#include <span>
#include <vector>

namespace pelton::launch {

struct GpuUser {
  int gpus_each = 0;  // 0: it takes none, and is left alone
  int least = 0;      // replicas that it has in any case
  int wanted = 0;     // that it is to have, as was last decided
  int running = 0;    // that take GPUs now, those among them that are to go
};
struct GpuShare {
  int most = 0;  // replicas
  int room = 0;  // further ones that may be started now
};
// In the order of the pools' priority.
std::vector<GpuShare> share_gpus(int gpus_max, std::span<const GpuUser> users);

}  // namespace pelton::launch
