#include "server/completion_answer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "server/chat_choice.h"
#include "server/generation_facts.h"
#include "server/sse_event.h"

namespace pelton::server {

CompletionAnswer::CompletionAnswer(const ServedModel& model, Options options)
    : model_(model),
      options_(std::move(options)),
      stop_tokens_(model.all_stop_tokens()),
      chunks_(options_.head, options_.include_usage),
      choices_(options_.choice_count, Choice(options_)),
      prompt_known_(options_.choice_count / options_.choices_per_prompt, 0) {
  if (options_.prompt_logprobs) prompt_logprobs_.resize(options_.prompts.size());
  if (options_.echoes.empty()) return;
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    choice.text = options_.echoes.at(i / options_.choices_per_prompt);
    choice.bytes_sampled = choice.text.size();
    choice.bytes_out = choice.text.size();
  }
}

void CompletionAnswer::prompt(size_t index, std::vector<engine::PromptToken> scored) {
  know_prompt(index / options_.choices_per_prompt, scored);
}

// The first of a prompt's choices is reported, for all of them; of a prompt of one token, nothing.
void CompletionAnswer::know_prompt(size_t prompt, const std::vector<engine::PromptToken>& scored) {
  if (std::exchange(prompt_known_[prompt], 1) != 0) return;
  const auto cut = [](auto& top, int count) {
    top.resize(std::min(top.size(), static_cast<size_t>(count)));
  };
  if (options_.prompt_logprobs) {
    std::vector<api::PromptTokenLogprobs>& reported = prompt_logprobs_[prompt];
    reported = prompt_logprobs(model_.tokenizer, scored);
    for (api::PromptTokenLogprobs& one : reported) cut(one.top, *options_.prompt_logprobs);
  }
  if (!echoes_logprobs()) return;
  const TokenNames names = options_.tokens_as_ids ? TokenNames::kIds : TokenNames::kText;
  std::vector<api::TokenLogprobs> echoed;
  const engine::SampledToken first{.token = options_.prompts.at(prompt).front()};
  echoed.push_back(token_logprobs(model_.tokenizer, first, names));
  echoed.back().foretold = false;
  for (const engine::PromptToken& one : scored) {
    echoed.push_back(token_logprobs(model_.tokenizer, one.scored, names));
    cut(echoed.back().top, options_.logprobs);
  }
  const std::vector<size_t>& hidden = options_.hidden_prompt_tokens;
  const size_t first_shown = hidden.empty() ? 0 : hidden.at(prompt);
  size_t offset = 0;
  for (size_t i = 0; i < echoed.size(); ++i) {
    echoed[i].text_offset = offset;
    if (i >= first_shown) offset += echoed[i].token.bytes.size();
  }
  for (size_t i = 0; i < options_.choices_per_prompt; ++i) {
    Choice& choice = choices_[prompt * options_.choices_per_prompt + i];
    choice.logprobs.insert(choice.logprobs.begin(), echoed.begin(), echoed.end());
  }
}

// Whether a choice is the one that its prompt's log-probabilities come with.
bool CompletionAnswer::leads(size_t index) const {
  return index % options_.choices_per_prompt == 0;
}

Answer::Wants CompletionAnswer::push(size_t index, const engine::SampledToken& token) {
  Choice& choice = choices_.at(index);
  if (leads(index)) know_prompt(index / options_.choices_per_prompt, {});
  if (options_.prompt_alone) return Wants::kNothing;
  ++usage_.completion_tokens;
  ++choice.sampled_tokens;
  choice.logprob_sum += static_cast<double>(token.logprob);
  choice.tokens_not_emitted = true;
  if (options_.logprobs >= 0) {
    choice.held.push_back(token_logprobs(
        model_.tokenizer, token, options_.tokens_as_ids ? TokenNames::kIds : TokenNames::kText));
    choice.held.back().text_offset = choice.bytes_sampled;
  }
  choice.last_token = token.token;
  if (options_.token_ids) choice.token_ids.push_back(token.token);
  if (is_text(token.token)) {
    scratch_.clear();
    choice.decoder.push(model_.tokenizer.bytes(token.token), scratch_);
    add(choice, scratch_);
  }
  return choice.stop_filter.stopped() ? Wants::kNothing : Wants::kMore;
}

// A control token ends or structures a text; it is no part of it, unless its client wants to see
// the structure.
bool CompletionAnswer::is_text(TokenId token) const {
  if (!model_.tokenizer.is_special(token)) return true;
  if (!options_.shows_marks) return false;
  const bool asked_stop =
      std::ranges::find(options_.stop_token_ids, token) != options_.stop_token_ids.end();
  if (asked_stop && options_.stop.itself == StopStrings::Itself::kCut) return false;
  return options_.ends_marked || std::ranges::find(stop_tokens_, token) == stop_tokens_.end();
}

void CompletionAnswer::add(Choice& choice, std::string_view text) {
  choice.bytes_sampled += text.size();
  const size_t before = choice.text.size();
  choice.stop_filter.push(text, choice.sampled_tokens, choice.text);
  choice.bytes_out += choice.text.size() - before;
  release_logprobs(choice, choice.bytes_out);
}

void CompletionAnswer::release_logprobs(Choice& choice, size_t end) {
  while (!choice.held.empty() && choice.held.front().text_offset < end) {
    choice.logprobs.push_back(std::move(choice.held.front()));
    choice.held.pop_front();
  }
}

void CompletionAnswer::end(size_t index, const engine::StreamEnd& end) {
  Choice& choice = choices_.at(index);
  if (leads(index)) know_prompt(index / options_.choices_per_prompt, {});
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
  const bool by_length = options_.prompt_alone || (end.reason == engine::FinishReason::kLength &&
                                                   !choice.stop_filter.stopped());
  choice.finish_reason = by_length ? "length" : "stop";
  if (end.reason == engine::FinishReason::kRepetition) choice.finish_reason = "repetition";
  choice.stop_reason = choice.stop_filter.stopped()
                           ? api::StopReason(choice.stop_filter.matched())
                           : stop_reason_of(end, choice.last_token, options_.stop_token_ids);
  add_answer(facts_, end);
  choice.prompt = {.prompt_tokens = end.prompt_tokens,
                   .cached_tokens = end.cached_tokens,
                   .cached_by_tier = end.cached_by_tier};
}

// Each prompt once.
void CompletionAnswer::count_prompts() {
  for (size_t i = 0; i < choices_.size(); i += options_.choices_per_prompt) {
    api::Usage prompt;
    for (size_t j = i; j < i + options_.choices_per_prompt; ++j) {
      add_prompt(prompt, choices_[j].prompt);
    }
    usage_.prompt_tokens += prompt.prompt_tokens;
    usage_.cached_tokens += prompt.cached_tokens;
    usage_.cached_on_host_tokens += prompt.cached_on_host_tokens;
    usage_.cached_on_disk_tokens += prompt.cached_on_disk_tokens;
    usage_.cached_from_peer_tokens += prompt.cached_from_peer_tokens;
  }
}

std::vector<size_t> CompletionAnswer::best_choices(size_t prompt) const {
  std::vector<size_t> choices(options_.choices_per_prompt);
  std::iota(choices.begin(), choices.end(), prompt * options_.choices_per_prompt);
  if (options_.choices_shown >= choices.size()) return choices;
  const auto mean = [&](size_t choice) {
    const auto tokens = static_cast<double>(std::max<int64_t>(choices_[choice].sampled_tokens, 1));
    return choices_[choice].logprob_sum / tokens;
  };
  std::ranges::stable_sort(choices, [&](size_t a, size_t b) { return mean(a) > mean(b); });
  choices.resize(options_.choices_shown);
  return choices;
}

api::CompletionChoice CompletionAnswer::take(size_t index) {
  Choice& choice = choices_[index];
  api::CompletionChoice taken{.index = static_cast<int>(index),
                              .text = std::exchange(choice.text, {}),
                              .logprobs = {},
                              .finish_reason = choice.finish_reason};
  if (options_.logprobs >= 0) taken.logprobs = std::exchange(choice.logprobs, {});
  taken.stop_reason = choice.stop_reason;
  const size_t prompt = index / options_.choices_per_prompt;
  if (options_.prompt_logprobs && !std::exchange(choice.prompt_logprobs_sent, true)) {
    taken.prompt_logprobs = &prompt_logprobs_[prompt];
  }
  if (options_.token_ids) {
    taken.token_ids = std::exchange(choice.token_ids, {});
    if (!std::exchange(choice.prompt_emitted, true)) {
      taken.prompt_token_ids = &options_.prompts.at(prompt);
    }
  }
  return taken;
}

void CompletionAnswer::take_events(std::string& out) {
  if (options_.continuous_usage) {
    chunks_.add_usage(
        {.prompt_tokens = options_.prompt_tokens, .completion_tokens = usage_.completion_tokens});
  }
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    if (waits_for_prompt(i)) continue;
    const bool finishes = !choice.finish_reason.empty() && !choice.finish_sent;
    // Where each chunk has the tokens, those without text get one too.
    const bool has_tokens = options_.continuous_usage && choice.tokens_not_emitted;
    const bool nothing = choice.text.empty() && choice.logprobs.empty() && choice.token_ids.empty();
    if (nothing && !finishes && !has_tokens) continue;
    choice.tokens_not_emitted = false;
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
  for (size_t prompt = 0; prompt < prompt_known_.size(); ++prompt) {
    for (const size_t choice : best_choices(prompt)) {
      const auto index = static_cast<int>(choices.size());
      choices.push_back(take(choice));
      choices.back().index = index;
    }
  }
  count_prompts();
  const api::Timings timings = timings_of(facts_);
  return api::completion_answer_body(options_.head, choices, usage_,
                                     options_.timings ? &timings : nullptr);
}

}  // namespace pelton::server
