#include "server/chat_choice.h"

#include <iterator>
#include <utility>

#include "base/random.h"
#include "server/chat_prompt.h"
#include "server/random_id.h"
#include "server/sse_event.h"

namespace pelton::server {
namespace {

std::string_view finish_word(chat::ReplyFinish finish) {
  switch (finish) {
    case chat::ReplyFinish::kStop:
      return "stop";
    case chat::ReplyFinish::kToolCalls:
      return "tool_calls";
    case chat::ReplyFinish::kLength:
      return "length";
  }
  return "stop";
}

}  // namespace

api::TokenLogprobs token_logprobs(const tokenizer::Tokenizer& tokenizer,
                                  const engine::SampledToken& token) {
  api::TokenLogprobs logprobs;
  logprobs.token.bytes = tokenizer.bytes(token.token);
  logprobs.token.logprob = token.logprob;
  for (const auto& [id, logprob] : token.top) {
    api::ScoredToken& other = logprobs.top.emplace_back();
    other.bytes = tokenizer.bytes(id);
    other.logprob = logprob;
  }
  return logprobs;
}

bool ChatChoice::Pending::empty() const {
  return reasoning.empty() && content.empty() && tool_calls.empty() && logprobs.empty();
}

ChatChoice::ChatChoice(const ServedModel& model, const Options& options, int index)
    : model_(model),
      options_(options),
      index_(index),
      builder_(model.tokenizer, model.harmony, {}),
      stop_filter_(options.stop, options.stop_text),
      turn_(options.opening) {
  for (const TokenId token : options_.opening) {
    builder_.push(token, delta_);
    add(delta_);
  }
}

Answer::Wants ChatChoice::push(const engine::SampledToken& token) {
  ++sampled_tokens_;
  turn_.push_back(token.token);
  const size_t content_before = content_sampled_;
  builder_.push(token.token, delta_);
  if (options_.logprobs && delta_.kind == chat::ReplyDelta::Kind::kContent) {
    held_logprobs_.push_back({content_before, token_logprobs(model_.tokenizer, token)});
  }
  add(delta_);
  return stop_filter_.stopped() ? Answer::Wants::kNothing : Answer::Wants::kMore;
}

void ChatChoice::add(const chat::ReplyDelta& delta) {
  content_sampled_ += delta.content.size();
  scratch_.clear();
  stop_filter_.push(delta.content, scratch_);
  content_ += scratch_;
  release_logprobs(content_.size());
  if (options_.stream) {
    pending_.reasoning += delta.reasoning;
    pending_.content += scratch_;
  }
  for (const chat::ToolCallDelta& call : delta.tool_calls) add_call(call);
}

void ChatChoice::add_call(const chat::ToolCallDelta& delta) {
  if (delta.begins) {
    call_ids_.push_back(random_id(
        "call_", {.seed = base::random_bits(options_.call_id_seed, static_cast<uint64_t>(index_)),
                  .counter = call_ids_.size()}));
  }
  if (!options_.stream) return;
  std::vector<chat::ToolCallDelta>& calls = pending_.tool_calls;
  if (!calls.empty() && calls.back().index == delta.index && !delta.begins) {
    calls.back().arguments += delta.arguments;
  } else {
    calls.push_back(delta);
  }
}

// Lets out the log-probabilities of tokens whose text has begun to come out.
void ChatChoice::release_logprobs(size_t content_end) {
  auto held = held_logprobs_.begin();
  while (held != held_logprobs_.end() && held->content_offset < content_end) {
    (options_.stream ? pending_.logprobs : logprobs_).push_back(std::move(held->logprobs));
    ++held;
  }
  held_logprobs_.erase(held_logprobs_.begin(), held);
}

void ChatChoice::end(const engine::StreamEnd& end) {
  const bool stopped = stop_filter_.stopped();
  const bool by_length = end.reason == engine::FinishReason::kLength && !stopped;
  reply_ =
      builder_.finish(by_length ? chat::StopCause::kLength : chat::StopCause::kStopToken, delta_);
  if (!stopped) {
    add(delta_);
    scratch_.clear();
    stop_filter_.finish(scratch_);
    content_ += scratch_;
    if (options_.stream) pending_.content += scratch_;
    // Half a code point's tokens may stand at the very end, with no text of their own.
    if (!stop_filter_.stopped()) release_logprobs(content_.size() + 1);
  }
  if (reply_.content) reply_.content = std::move(content_);
  finish_reason_ = stop_filter_.stopped() ? "stop" : finish_word(reply_.finish);
  if (!stopped && end.reason == engine::FinishReason::kStop) keep_turn();
}

// Only what the client's words stand for entirely.
void ChatChoice::keep_turn() {
  if (!options_.place || !reply_.warnings.empty() || reply_.tool_calls.size() > 1) return;
  std::vector<TokenId> turn = turn_to_keep(model_, std::move(turn_));
  if (turn.empty()) return;
  SampledTurns::Words words;
  if (reply_.content) words.content = *reply_.content;
  if (reply_.reasoning) words.reasoning = *reply_.reasoning;
  if (!reply_.tool_calls.empty()) {
    const chat::ToolCall& call = reply_.tool_calls[0];
    words.call.emplace(call.name, call.arguments);
  }
  options_.place->turns->keep(options_.place->history, words, std::move(turn));
}

void ChatChoice::take_events(const api::ChatChunks& chunks, std::string& out) {
  if (!role_sent_) {
    role_sent_ = true;
    append_sse_event(
        out, [&](std::string& json) { chunks.delta({.choice = index_, .role = true}, json); });
  }
  if (!pending_.empty()) take_delta(chunks, out);
  if (finish_reason_.empty() || finish_sent_) return;
  finish_sent_ = true;
  append_sse_event(out, [&](std::string& json) { chunks.finish(index_, finish_reason_, json); });
}

void ChatChoice::take_delta(const api::ChatChunks& chunks, std::string& out) {
  std::vector<api::ChatToolCallDelta> calls;
  for (const chat::ToolCallDelta& call : pending_.tool_calls) {
    const std::string_view id = call.begins
                                    ? std::string_view(call_ids_[static_cast<size_t>(call.index)])
                                    : std::string_view();
    calls.push_back(
        {.index = call.index, .id = id, .name = call.name, .arguments = call.arguments});
  }
  const api::ChatDelta delta{.choice = index_,
                             .reasoning = pending_.reasoning,
                             .content = pending_.content,
                             .tool_calls = calls,
                             .logprobs = &pending_.logprobs};
  append_sse_event(out, [&](std::string& json) { chunks.delta(delta, json); });
  pending_ = {};
}

api::ChatChoice ChatChoice::take_whole() {
  api::ChatChoice whole{.content = std::move(reply_.content),
                        .reasoning = std::move(reply_.reasoning),
                        .tool_calls = {},
                        .logprobs = {},
                        .finish_reason = finish_reason_};
  for (size_t i = 0; i < reply_.tool_calls.size(); ++i) {
    chat::ToolCall& call = reply_.tool_calls[i];
    whole.tool_calls.push_back({call_ids_[i], std::move(call.name), std::move(call.arguments)});
  }
  if (options_.logprobs) whole.logprobs = std::move(logprobs_);
  return whole;
}

}  // namespace pelton::server
