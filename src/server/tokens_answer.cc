#include "server/tokens_answer.h"

#include <utility>

#include "server/chat_choice.h"
#include "server/generation_facts.h"

namespace pelton::server {

TokensAnswer::TokensAnswer(Options options) : options_(std::move(options)) {
  for (int i = 0; i < options_.choice_count; ++i) {
    choices_.push_back(
        {.index = i, .tokens = {}, .logprobs = options_.logprobs, .finish_reason = {}});
  }
  finish_sent_.resize(choices_.size(), false);
}

void TokensAnswer::prompt(size_t /*choice*/, std::vector<engine::PromptToken> scored) {
  prompt_logprobs_ = prompt_logprobs(*options_.prompt_logprobs, scored);
}

Answer::Wants TokensAnswer::push(size_t choice, const engine::SampledToken& token) {
  ++usage_.completion_tokens;
  choices_.at(choice).tokens.push_back(
      {.token = token.token, .logprob = token.logprob, .top = token.top});
  return Wants::kMore;
}

void TokensAnswer::end(size_t choice, const engine::StreamEnd& end) {
  std::string_view& reason = choices_.at(choice).finish_reason;
  reason = end.reason == engine::FinishReason::kLength ? "length" : "stop";
  if (end.reason == engine::FinishReason::kRepetition) reason = "repetition";
  add_prompt(usage_, end);
}

void TokensAnswer::take_events(std::string& out) {
  for (size_t i = 0; i < choices_.size(); ++i) {
    api::GeneratedChoice& choice = choices_[i];
    const bool finishes = !choice.finish_reason.empty() && !finish_sent_[i];
    if (choice.tokens.empty() && !finishes) continue;
    finish_sent_[i] = finishes;
    append_sse_event(
        out, [&](std::string& json) { api::append_generate_chunk(options_.id, choice, json); });
    choice.tokens.clear();
  }
}

void TokensAnswer::take_last_events(std::string& out) {
  take_events(out);
  if (options_.include_usage) {
    append_sse_event(
        out, [&](std::string& json) { api::append_generate_usage(options_.id, usage_, json); });
  }
  out += kSseDone;
}

std::string TokensAnswer::whole_body() {
  return api::generate_body(options_.id, choices_,
                            options_.prompt_logprobs != nullptr ? &prompt_logprobs_ : nullptr,
                            usage_);
}

}  // namespace pelton::server
