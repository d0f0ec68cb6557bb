#include "server/completion_answer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "server/chat_choice.h"
#include "server/sse_event.h"

namespace pelton::server {

CompletionAnswer::CompletionAnswer(const ServedModel& model, Options options)
    : model_(model),
      options_(std::move(options)),
      chunks_(options_.head, options_.include_usage),
      choices_(options_.choice_count, Choice(options_)) {
  if (options_.echoes.empty()) return;
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    choice.text = options_.echoes.at(i / options_.choices_per_prompt);
    choice.bytes_sampled = choice.text.size();
    choice.bytes_out = choice.text.size();
  }
}

Answer::Wants CompletionAnswer::push(size_t index, const engine::SampledToken& token) {
  Choice& choice = choices_.at(index);
  ++usage_.completion_tokens;
  choice.tokens_untold = true;
  if (options_.logprobs) {
    choice.held.push_back(
        {choice.bytes_sampled,
         token_logprobs(model_.tokenizer, token,
                        options_.tokens_as_ids ? TokenNames::kIds : TokenNames::kText)});
  }
  choice.last_token = token.token;
  if (options_.token_ids) choice.token_ids.push_back(token.token);
  // A control token ends or structures a text; it is no part of it.
  if (!model_.tokenizer.is_special(token.token)) {
    scratch_.clear();
    choice.decoder.push(model_.tokenizer.bytes(token.token), scratch_);
    add(choice, scratch_);
  }
  return choice.stop_filter.stopped() ? Wants::kNothing : Wants::kMore;
}

void CompletionAnswer::add(Choice& choice, std::string_view text) {
  choice.bytes_sampled += text.size();
  const size_t before = choice.text.size();
  choice.stop_filter.push(text, choice.text);
  choice.bytes_out += choice.text.size() - before;
  release_logprobs(choice, choice.bytes_out);
}

void CompletionAnswer::release_logprobs(Choice& choice, size_t end) {
  while (!choice.held.empty() && choice.held.front().offset < end) {
    if (choice.logprobs.empty()) choice.logprobs_offset = choice.held.front().offset;
    choice.logprobs.push_back(std::move(choice.held.front().logprobs));
    choice.held.pop_front();
  }
}

void CompletionAnswer::end(size_t index, const engine::StreamEnd& end) {
  Choice& choice = choices_.at(index);
  if (!choice.stop_filter.stopped()) {
    scratch_.clear();
    choice.decoder.finish(scratch_);
    add(choice, scratch_);
  }
  if (!choice.stop_filter.stopped()) {
    const size_t before = choice.text.size();
    choice.stop_filter.finish(choice.text);
    choice.bytes_out += choice.text.size() - before;
    // The stop token, and others without text of their own, stand at the very end.
    release_logprobs(choice, choice.bytes_out + 1);
  }
  const bool by_length =
      end.reason == engine::FinishReason::kLength && !choice.stop_filter.stopped();
  choice.finish_reason = by_length ? "length" : "stop";
  if (end.reason == engine::FinishReason::kRepetition) choice.finish_reason = "repetition";
  choice.stop_reason = choice.stop_filter.stopped()
                           ? api::StopReason(choice.stop_filter.matched())
                           : stop_reason_of(end, choice.last_token, options_.stop_token_ids);
  facts_.add(end);
  choice.prompt_tokens = end.prompt_tokens;
  choice.cached_tokens = end.cached_tokens;
}

// Each prompt once; the choice that found least of it in the cache had it computed.
void CompletionAnswer::count_prompts() {
  for (size_t i = 0; i < choices_.size(); i += options_.choices_per_prompt) {
    int cached = choices_[i].cached_tokens;
    for (size_t j = i; j < i + options_.choices_per_prompt; ++j) {
      cached = std::min(cached, choices_[j].cached_tokens);
    }
    usage_.prompt_tokens += choices_[i].prompt_tokens;
    usage_.cached_tokens += cached;
  }
}

api::CompletionChoice CompletionAnswer::take(size_t index) {
  Choice& choice = choices_[index];
  api::CompletionChoice taken{.index = static_cast<int>(index),
                              .text = std::exchange(choice.text, {}),
                              .logprobs = {},
                              .logprobs_offset = choice.logprobs_offset,
                              .finish_reason = choice.finish_reason};
  if (options_.logprobs) taken.logprobs = std::exchange(choice.logprobs, {});
  taken.stop_reason = choice.stop_reason;
  if (options_.token_ids) {
    taken.token_ids = std::exchange(choice.token_ids, {});
    if (!std::exchange(choice.prompt_told, true)) {
      taken.prompt_token_ids = &options_.prompts.at(index / options_.choices_per_prompt);
    }
  }
  return taken;
}

void CompletionAnswer::take_events(std::string& out) {
  if (options_.continuous_usage) {
    chunks_.tell_usage(
        {.prompt_tokens = options_.prompt_tokens, .completion_tokens = usage_.completion_tokens});
  }
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    const bool finishes = !choice.finish_reason.empty() && !choice.finish_sent;
    // Where each chunk tells the tokens, those without text get one too.
    const bool tells = options_.continuous_usage && choice.tokens_untold;
    const bool nothing = choice.text.empty() && choice.logprobs.empty() && choice.token_ids.empty();
    if (nothing && !finishes && !tells) continue;
    choice.tokens_untold = false;
    choice.finish_sent = finishes;
    const api::CompletionChoice taken = take(i);
    append_sse_event(out, [&](std::string& json) { chunks_.choice(taken, json); });
  }
}

void CompletionAnswer::take_last_events(std::string& out) {
  take_events(out);
  count_prompts();
  if (options_.include_usage || options_.timings) {
    const api::Timings timings = timings_of(facts_);
    append_sse_event(out, [&](std::string& json) {
      chunks_.last(options_.include_usage ? &usage_ : nullptr,
                   options_.timings ? &timings : nullptr, json);
    });
  }
  out += kSseDone;
}

std::string CompletionAnswer::whole_body() {
  std::vector<api::CompletionChoice> choices;
  for (size_t i = 0; i < choices_.size(); ++i) choices.push_back(take(i));
  count_prompts();
  const api::Timings timings = timings_of(facts_);
  return api::completion_answer_body(options_.head, choices, usage_,
                                     options_.timings ? &timings : nullptr);
}

}  // namespace pelton::server
