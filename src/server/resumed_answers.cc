#include "server/resumed_answers.h"

#include <algorithm>
#include <utility>

namespace pelton::server {

std::vector<int> resume_work(const ResumedAnswers& resumed, size_t first, EngineWork& work) {
  std::vector<int> open;
  size_t said = 0;
  for (int i = 0; i < work.answers; ++i) {
    const size_t at = first + static_cast<size_t>(i);
    request::ResumedAnswer answer{.index = i, .tokens = {}};
    if (at < resumed.choices.size()) {
      const ResumedChoice& choice = resumed.choices[at];
      if (choice.end) continue;
      answer.tokens.reserve(choice.tokens.size());
      for (const engine::SampledToken& token : choice.tokens) answer.tokens.push_back(token.token);
    }
    said = std::max(said, answer.tokens.size());
    open.push_back(i);
    work.request.resumed.push_back(std::move(answer));
  }
  work.answers = static_cast<int>(open.size());
  if (resumed.further_max > 0) {
    work.request.stop.max_new_tokens =
        std::min(work.request.stop.max_new_tokens, static_cast<int>(said) + resumed.further_max);
  }
  work.request.was_counted = resumed.warmed;
  if (resumed.delivered) work.request.sampling.prompt_logprobs = -1;  // with the first token
  return open;
}

engine::StreamEnd as_begun(const ResumedAnswers* resumed, size_t choice, engine::StreamEnd end) {
  if (resumed == nullptr || choice >= resumed->choices.size()) return end;
  const std::optional<engine::PromptFound>& found = resumed->choices[choice].found;
  if (!found || found->cached_tokens > end.prompt_tokens) return end;
  end.cached_tokens = found->cached_tokens;
  end.cached_by_tier = found->by_tier;
  end.cached_from_peer = found->from_peer;
  return end;
}

// How far mirostat's bound has moved is not known of what was sampled elsewhere.
bool can_resume(const EngineWork& work) {
  if (work.request.sampling.mirostat.target > 0.0f) return false;
  return work.request.sampling.prompt_logprobs < 0 || work.mode == Generation::Mode::kStream;
}

}  // namespace pelton::server
