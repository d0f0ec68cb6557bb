// Answers of a request that began at another server, as its gateway saw them. Values and pure
// functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/token_stream.h"
#include "server/engine_work.h"

namespace pelton::server {

struct ResumedChoice {
  std::vector<engine::SampledToken> tokens;
  std::optional<engine::StreamEnd> end;  // it is over
  // By who began it; none: nobody has said so. What is found here was computed for it.
  std::optional<engine::PromptFound> found;
};

struct ResumedAnswers {
  std::vector<ResumedChoice> choices;  // those that are missing have no token yet
  // As the first server wrote them, by their numbers: only of requests with a single prompt, whose
  // past turns that server had sampled. None: as every server writes them.
  std::vector<std::vector<TokenId>> prompts;
  // The digest of the LoRA adapter that they were computed with; empty: of none. No other goes on.
  std::string adapter;
  // Bytes have gone to the client: events of what is repeated here are not sent again.
  bool delivered = false;
  // Each ends when it has said so many further tokens; 0: as its request says.
  int further_max = 0;
  bool warmed = false;  // this server has been warmed up for it, and has counted its prompt
};

// What the engine has still to do of `work`, whose first answer is the choice `first`: gives its
// request what each of them said, and returns which of them are not over (0 to answers - 1).
std::vector<int> resume_work(const ResumedAnswers& resumed, size_t first, EngineWork& work);

// An end of the choice as its client sees it.
engine::StreamEnd as_begun(const ResumedAnswers* resumed, size_t choice, engine::StreamEnd end);

// Whether it may go on amid its answers. Otherwise it is computed anew: a whole body that says
// how likely its prompt was, which only goes out with a first token.
bool can_resume(const EngineWork& work);

}  // namespace pelton::server
