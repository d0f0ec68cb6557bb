// Before a run: is the server there, which model does it have, and how much does it tell while it
// streams? Waits on the calling thread.
#pragma once

#include <atomic>
#include <chrono>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "bench/question.h"
#include "bench/target.h"
#include "report/request_record.h"

namespace pelton::bench {

// How long a server may take for a whole answer, and who may end the wait sooner.
struct Patience {
  std::chrono::milliseconds time_max{30'000};
  const std::atomic<bool>& stop;
};

// The first of GET /v1/models, for a user who names none.
Result<std::string> first_model(const Target& target, const Patience& patience);

struct Answered {
  int status = 0;  // 0: no answer came
  report::RequestRecord record;
  std::string text;
};
// One question, waited for.
Answered ask_once(const Target& target, std::string body, int asked_tokens,
                  const base::Clock& clock, const Patience& patience);

struct ProbeOptions {
  double ready_s = 0;  // how long a server may take until it answers; 0: it must be there now
  int output_tokens_max = 8;
};
struct Probed {
  Counts counts = Counts::kEachPiece;
  double first_token_s = 0;
  double token_s = 0;  // between tokens
};
// Asks the conversation's first turn, briefly; what the server refuses of `question` (some do not
// know continuous_usage_stats) is left out and asked again. Errors: the server's own words.
Result<Probed> probe(const Target& target, const QuestionOptions& question,
                     const workload::Conversation& conversation, const ProbeOptions& options,
                     const base::Clock& clock, const Patience& patience);

}  // namespace pelton::bench
