// One prompt of a request, on its way to the engine: what prepare() of the request pipeline makes
// and start_generation() takes. A value.
#pragma once

#include <string>

#include "request/generation_request.h"
#include "server/generation.h"

namespace pelton::server {

struct EngineWork {
  std::string id;  // by which the answer is known
  request::GenerationRequest request;
  int answers = 1;
  Generation::Mode mode = Generation::Mode::kWhole;
  Generation::Pacing pacing = {};
  bool can_be_controlled = false;  // by its id, while it runs (RunningAnswers)
  bool has_sampled_turns = false;  // see ChatPrompt
};

}  // namespace pelton::server
