// A load test without a server: prompts straight to an engine in this process, as many as it takes,
// as fast as it goes. Waits on the calling thread; tokens arrive by way of the engine's.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"
#include "report/request_record.h"

namespace pelton::bench {

struct OfflineQuestion {
  std::vector<TokenId> prompt;
  int output_tokens = 1;
};

struct OfflineOptions {
  std::vector<TokenId> stop_tokens;  // empty: answers are as long as asked for
  float temperature = 1.0f;
  uint64_t seed = 0;
  std::function<void(int64_t done)> on_done;  // may be empty; on the calling thread
};

struct OfflineOutcome {
  std::vector<report::RequestRecord> records;  // in the order of the questions
  double duration_s = 0;
};

// Errors: kCancelled when `stop` became true; whatever the engine says of a question that it can
// never take.
Result<OfflineOutcome> run_offline(engine::Engine& engine,
                                   const std::vector<OfflineQuestion>& questions,
                                   const OfflineOptions& options, const base::Clock& clock,
                                   const std::atomic<bool>& stop);

}  // namespace pelton::bench
