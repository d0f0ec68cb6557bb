// Before a run: is the server there, which model does it have, and how much does it report while it
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

// How long a server is waited for, and who may end the wait sooner.
struct Patience {
  // Silence: until the head, and then until each next piece that brings something, however long
  // all of the answer takes. A list of models is whole within it.
  std::chrono::milliseconds quiet_time_max{30'000};
  // On the clock: until then a server that is not there or not ready is asked again.
  int64_t ready_until_ns = 0;
  const std::atomic<bool>& stop;
};

// The first of GET /v1/models, for a user who names none. Errors: kInvalidArgument where the server
// refuses the request, kUnavailable and others where it fails.
Result<std::string> first_model(const Target& target, const base::Clock& clock,
                                const Patience& patience);

// GET /metrics; empty where the server has no such page here.
std::string metrics_page(const Target& target, const Patience& patience);

struct Answered {
  int status = 0;  // 0: no answer came
  report::RequestRecord record;
  std::string text;
};
// One question, waited for.
Answered ask_once(const Target& target, std::string body, const AnswerLimits& limits,
                  const base::Clock& clock, const Patience& patience);

struct Probed {
  Counts counts = Counts::kEachPiece;
  double first_token_s = 0;
  double token_s = 0;  // between tokens
};
// Asks the conversation's first turn, briefly; what the server refuses of `question` (some do not
// know continuous_usage_stats) is left out and asked again. Errors: the server's own words, with
// first_model's codes.
Result<Probed> probe(const Target& target, const QuestionOptions& question,
                     const workload::Conversation& conversation, const base::Clock& clock,
                     const Patience& patience);

}  // namespace pelton::bench
