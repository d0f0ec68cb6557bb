// A completion by beam search ("use_beam_search"): one prompt after the other, each step a request
// to the engine for every live beam, of one token and with its alternatives. What a beam has in
// common with the one before is found in the prefix cache, as any prompt's beginning is.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "server/call.h"
#include "server/completion_answer.h"
#include "server/engine_work.h"
#include "server/services.h"

namespace pelton::server {

struct BeamCompletion {
  std::vector<EngineWork> prompts;           // what each begins with; none of its sampling is used
  std::unique_ptr<CompletionAnswer> answer;  // of `shown` choices of each prompt
  int width = 1;
  int shown = 1;
  double length_penalty = 1.0;
  bool early_stopping = false;
  int logprobs = -1;  // alternatives that are reported; -1: none
};

// On the call's net thread, where the search lives until it is answered or its client gone.
void start_beam_search(Call call, Services& services, BeamCompletion completion);

}  // namespace pelton::server
