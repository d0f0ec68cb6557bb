// What became of relayed requests, and of the file that says where they go. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "gateway/gateway_figures.h"
#include "gateway/served_figures.h"

namespace pelton::gateway {

struct RelayCounters {
  GatewayFigures figures;
  ServedFigures served;
  std::atomic<int64_t> answered{0};     // wholly, whatever their status
  std::atomic<int64_t> fallbacks{0};    // sent to another pool of their route
  std::atomic<int64_t> drain_moves{0};  // sent on because their worker was being stopped
  std::atomic<int64_t> warm_moves{0};   // of these, to one that had computed what was said before
  std::atomic<int64_t> warm_tokens{0};  // said meanwhile by those that were left
  std::atomic<int64_t> interrupted{0};  // ended by an error amid an answer
  std::atomic<int64_t> unserved{0};     // refused by the gateway itself
  std::atomic<int64_t> quarantined{0};
  std::atomic<int64_t> left{0};  // by their clients
  std::atomic<int64_t> open{0};
  // Of answers whose prompts had names: what their workers were expected to find of them, and did.
  std::atomic<int64_t> named{0};
  std::atomic<int64_t> expected_hit_tokens{0};
  std::atomic<int64_t> real_hit_tokens{0};
  std::atomic<int64_t> hit_mismatches{0};  // by a block or more
  // Sent to workers with an adapter, and of these to one that had it in memory.
  std::atomic<int64_t> adapter_requests{0};
  std::atomic<int64_t> adapter_resident{0};
  std::atomic<int64_t> prompt_mismatches{0};  // the worker counted other tokens
  std::atomic<int64_t> reloads{0};            // of the configuration
  std::atomic<int64_t> reloads_refused{0};    // the file was wrong
};

}  // namespace pelton::gateway
