// What speculation gains: a batch of random prompts answered greedily by the whole engine, with and
// without guesses by turns. The answers must be the same. Main thread.
#pragma once

#include <string>
#include <vector>

#include "apps/decode_bench.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "executor/local_executor.h"

namespace pelton::apps {

struct SpeculationReport {
  std::string method;
  double plain_tok_s = 0;  // decoding, all sequences together; medians
  double tok_s = 0;
  double tokens_per_step = 0;  // of one sequence, rows without guesses included
  double tokens_per_row = 0;   // of rows with guesses; 0: there were none
  double drafted_per_row = 0;
  // Rows with guesses in which the guess at this place was right, and all before it.
  std::vector<double> accepted_by_place;
  double drafting_share = 0;  // of the steps' time
  double forecast_gain = 0;   // by the controller's step times and acceptance, at its last choice
  double step_ms = 0;         // of one row, as the engine knows it
  double draft_ms = 0;        // of guessing, a step
  int runs = 0;

  double gain() const { return plain_tok_s > 0 ? tok_s / plain_tok_s : 0; }
};

// executor: kernels, threads and the speculation to measure; an oracle without a file gets the
// answers of a first run. Errors: those of the executor; kInternal if an answer differs.
Result<SpeculationReport> measure_speculation(const checkpoint::Checkpoint& checkpoint,
                                              executor::LocalExecutor::Options executor,
                                              const DecodeBench::Options& shape, int runs);

std::string to_text(const SpeculationReport& report);
std::string to_json(const SpeculationReport& report);

}  // namespace pelton::apps
