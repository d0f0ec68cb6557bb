// What several ranks make of a model beside one process with as many threads: the same random
// prompts, answered greedily by whole engines by turns. The answers must be the same, token by
// token. Main thread.
#pragma once

#include <string>
#include <vector>

#include "apps/decode_bench.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "executor/local_executor.h"

namespace pelton::apps {

struct RankReport {
  int ranks = 0;
  std::string transport;  // "shm", "tcp"
  bool deals_experts = false;
  std::string kernels;
  int threads = 0;      // of each rank
  int one_threads = 0;  // of the one process
  int batch_size = 1;
  int input_len = 0;
  int output_len = 0;
  int runs = 0;
  // Tokens a second, all sequences together: medians. The ratios are the middle ones of the turns,
  // each of two runs side by side.
  double prefill_tok_s = 0;
  double decode_tok_s = 0;
  double one_prefill_tok_s = 0;
  double one_decode_tok_s = 0;
  double prefill_ratio = 0;
  double decode_ratio = 0;
  // Of the leader, in all measured runs: shares of the time in which steps ran.
  double copying_share = 0;  // exchanges, without waiting for another rank
  double waiting_share = 0;
  double exchanges_per_run = 0;
};

// `executor`: kernels, threads of each rank, and its ranks. Errors: those of the executor;
// kInternal if an answer differs.
Result<RankReport> measure_ranks(const checkpoint::Checkpoint& checkpoint,
                                 executor::LocalExecutor::Options executor,
                                 const DecodeBench::Options& shape, int runs);

std::string to_text(const RankReport& report);
std::string to_json(const RankReport& report);

}  // namespace pelton::apps
