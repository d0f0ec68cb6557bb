// How long a load test may take, from one short answer before it: said where that is long. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/probe.h"
#include "bench/question.h"
#include "bench/target.h"
#include "workload/conversation.h"

namespace pelton::bench {

struct ExpectedDuration {
  int64_t requests = 0;     // every turn of every conversation
  double one_by_one_s = 0;  // without any batching, and without the users' pauses
  // When they come and how long users pause, with every answer as quick as if it were alone;
  // 0: all come at once and nobody pauses.
  double least_s = 0;
};

// The i-th of `conversations` begins at `at_s[i]`.
ExpectedDuration expected_duration(const Target& target, const QuestionOptions& question,
                                   const std::vector<workload::Conversation>& conversations,
                                   const std::vector<double>& at_s, const Probed& probed);

}  // namespace pelton::bench
