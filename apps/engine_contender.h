// An engine over an executor of its own, for measurements that set two of them side by side: the
// same requests, answered whole. Main thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "apps/decode_bench.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "executor/local_executor.h"
#include "parallel/group.h"
#include "request/generation_request.h"

namespace pelton::apps {

class EngineContender {
 public:
  using Tokens = std::vector<TokenId>;
  struct Outcome {
    std::vector<Tokens> answers;
    double tok_s = 0;      // all sequences together, from the last one's first token on
    double prefill_s = 0;  // until that token
    double decode_s = 0;   // from there on
  };

  // `checkpoint` outlives it. Errors: those of the executor.
  static Result<std::unique_ptr<EngineContender>> make(
      const checkpoint::Checkpoint& checkpoint, const executor::LocalExecutor::Options& options);

  // Errors: that of the first answer that has one.
  Result<Outcome> answer(const std::vector<request::GenerationRequest>& requests);

  engine::EngineStats stats() const { return engine_->stats(); }
  // Empty: one process.
  std::vector<parallel::Group::RankState> ranks() const { return executor_->ranks(); }
  int threads() const { return executor_->threads(); }
  std::string_view kernels_name() const { return executor_->kernels_name(); }

 private:
  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};  // what fails is answered
  std::unique_ptr<executor::LocalExecutor> executor_;
  std::unique_ptr<engine::Engine> engine_;
};

// Prompts of random tokens, answered greedily: `shape.batch_size` of them.
std::vector<request::GenerationRequest> random_requests(const DecodeBench::Options& shape,
                                                        int vocab_size);

}  // namespace pelton::apps
