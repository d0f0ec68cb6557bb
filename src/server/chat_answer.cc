#include "server/chat_answer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "server/generation_facts.h"
#include "server/sse_event.h"

namespace pelton::server {

ChatAnswer::ChatAnswer(const ServedModel& model, Options options)
    : model_(model), options_(std::move(options)), chunks_(options_.head, options_.include_usage) {
  for (int i = 0; i < options_.choice_count; ++i) {
    choices_.emplace_back(model, options_.choice, i);
  }
}

void ChatAnswer::prompt(size_t /*choice*/, std::vector<engine::PromptToken> scored) {
  prompt_logprobs_ = prompt_logprobs(model_.tokenizer, scored);
  prompt_logprobs_due_ = options_.prompt_logprobs;
}

Answer::Wants ChatAnswer::push(size_t choice, const engine::SampledToken& token) {
  return choices_.at(choice).push(token);
}

void ChatAnswer::end(size_t choice, const engine::StreamEnd& end) {
  ChatChoice& one = choices_.at(choice);
  one.end(end);
  add_answer(facts_, end);
  add_prompt(usage_, end);
  usage_.completion_tokens += one.sampled_tokens();
  usage_.reasoning_tokens += one.reasoning_tokens();
  if (!options_.has_prediction) return;
  if (!usage_.prediction) usage_.prediction.emplace();
  usage_.prediction->accepted += end.accepted_prediction_tokens;
  usage_.prediction->rejected += end.rejected_prediction_tokens;
}

// As soon as they are known.
void ChatAnswer::take_prompt_event(std::string& out) {
  if (!std::exchange(prompt_logprobs_due_, false)) return;
  append_sse_event(out,
                   [&](std::string& json) { chunks_.prompt_logprobs(prompt_logprobs_, json); });
}

void ChatAnswer::take_events(std::string& out) {
  take_prompt_event(out);
  if (options_.continuous_usage) return take_counted_events(out);
  for (ChatChoice& choice : choices_) choice.take_events(chunks_, emitted_prompt(), out);
}

// Tokens that show nothing (headers of messages) are reported by a chunk that says nothing else.
void ChatAnswer::take_counted_events(std::string& out) {
  api::Usage so_far{.prompt_tokens = options_.prompt_tokens};
  for (const ChatChoice& choice : choices_) so_far.completion_tokens += choice.sampled_tokens();
  chunks_.add_usage(so_far);
  tokens_emitted_.resize(choices_.size());
  for (size_t i = 0; i < choices_.size(); ++i) {
    const size_t before = out.size();
    choices_[i].take_events(chunks_, emitted_prompt(), out);
    const int64_t tokens = choices_[i].sampled_tokens();
    if (out.size() == before && tokens > tokens_emitted_[i]) {
      append_sse_event(
          out, [&](std::string& json) { chunks_.delta({.choice = static_cast<int>(i)}, json); });
    }
    tokens_emitted_[i] = tokens;
  }
}

void ChatAnswer::take_last_events(std::string& out) {
  take_events(out);
  if (options_.include_usage || options_.timings) {
    const api::Timings timings = timings_of(facts_);
    append_sse_event(out, [&](std::string& json) {
      chunks_.last(options_.include_usage ? &usage_ : nullptr,
                   options_.timings ? &timings : nullptr, json);
    });
  }
  out += kSseDone;
}

std::string ChatAnswer::whole_body() {
  std::vector<api::ChatChoice> whole;
  for (ChatChoice& choice : choices_) whole.push_back(choice.take_whole());
  const api::Timings timings = timings_of(facts_);
  return api::chat_answer_body(
      options_.head, whole, usage_,
      {.timings = options_.timings ? &timings : nullptr,
       .prompt_token_ids = options_.choice.token_ids ? &options_.prompt_token_ids : nullptr,
       .prompt_logprobs = options_.prompt_logprobs ? &prompt_logprobs_ : nullptr});
}

}  // namespace pelton::server
