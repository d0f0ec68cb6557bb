// Before a run: is the server there, which model does it have, and how much does it tell while it
// streams? Waits on the calling thread.
#pragma once

#include <atomic>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "bench/question.h"
#include "bench/target.h"
#include "report/request_record.h"

namespace pelton::bench {

// The first of GET /v1/models, for a user who names none.
Result<std::string> first_model(const Target& target);

struct Answered {
  int status = 0;  // 0: no answer came
  report::RequestRecord record;
  std::string text;
};
// One question, waited for.
Answered ask_once(const Target& target, std::string body, const base::Clock& clock);

struct ProbeOptions {
  double ready_s = 0;  // how long a server may take until it answers; 0: it must be there now
  int output_tokens_max = 8;
};
// Asks the conversation's first turn, briefly; what the server refuses of `question` (some do not
// know continuous_usage_stats) is left out and asked again. Errors: the server's own words.
Result<Counts> probe(const Target& target, const QuestionOptions& question,
                     const workload::Conversation& conversation, const ProbeOptions& options,
                     const base::Clock& clock, const std::atomic<bool>& stop);

}  // namespace pelton::bench
