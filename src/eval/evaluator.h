// Asks a server with OpenAI's chat API the tasks of an evaluation, many at a time, and judges what
// it says. A server that is busy, restarts or cuts an answer is asked again; a task that stays
// without an answer is counted as such. What has been answered is kept in a file as it comes, so
// that an evaluation that was interrupted goes on where it was. One owner, one thread; it makes
// threads of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "eval/evaluation.h"
#include "eval/sandbox.h"
#include "eval/task.h"
#include "net/http_client.h"

namespace pelton::eval {

struct EvaluatorOptions {
  net::HttpCall call;  // where to ask, with its headers; the body is the evaluator's
  int concurrency = 8;
  // Of one answer, from its request to its last byte. One that takes longer is none.
  std::chrono::milliseconds answer_time_max{600'000};
  // A task is given up when its first attempt is so long ago, or its server has cut or refused it
  // so often.
  std::chrono::milliseconds retry_time_max{120'000};
  int retries_max = 8;
  // Outcomes as they come, a line each; empty: none are kept. One that belongs to another setting
  // is an error.
  std::string journal;
  SandboxLimits sandbox;                                      // of programs that answers are
  std::function<bool()> stopped;                              // asked often
  std::function<void(int64_t done, int64_t total)> progress;  // on the caller's thread
};

// Asks all tasks that the journal has no answer to. Errors: kInvalidArgument (the journal is of
// another setting), kIo, kCancelled.
Result<Evaluation> evaluate(const std::vector<Task>& tasks, const Setting& setting,
                            const EvaluatorOptions& options);

// How long a server wants to be left alone, by its Retry-After in seconds; ten at most, as it may
// say what it likes. A date is none.
std::chrono::milliseconds retry_after(std::string_view header);

// What a whole answer to a chat completion says. Errors: kInvalidArgument: it is none.
struct ReadAnswer {
  Answer answer;
  std::string finish_reason;
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  Json usage;  // as the server says it; null: it says nothing
};
Result<ReadAnswer> read_answer(std::string_view body);

}  // namespace pelton::eval
