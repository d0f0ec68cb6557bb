#include "server/chat_turn.h"

#include <algorithm>
#include <utility>

namespace pelton::server {

ChatTurn::ChatTurn(const ServedModel& model, const Options& options)
    : model_(model),
      options_(options),
      stop_filter_(options.stop),
      builder_(model.chat->parser({options.may_call ? chat::Calls::kRead : chat::Calls::kAsText,
                                   options.functions}),
               {.preamble = options.preamble,
                .reader = {.callable = options.may_call, .one_call = options.one_call}}) {}

const chat::ReplyDelta& ChatTurn::begin() {
  chat::ReplyDelta all;
  for (const TokenId token : options_.opening) {
    turn_.push_back(token);
    builder_.push(token, delta_);
    if (!options_.shows_opening) {
      reasoning_hidden_ += delta_.reasoning.size();
      continue;
    }
    filter_content();
    all.reasoning += delta_.reasoning;
    all.content += delta_.content;
    for (chat::ToolCallDelta& call : delta_.tool_calls) all.tool_calls.push_back(std::move(call));
  }
  if (!options_.shows_opening) {
    builder_.settle(delta_);
    reasoning_hidden_ += delta_.reasoning.size();
  }
  delta_ = std::move(all);
  return delta_;
}

const chat::ReplyDelta& ChatTurn::push(TokenId token) {
  ++sampled_tokens_;
  turn_.push_back(token);
  builder_.push(token, delta_);
  if (!may_reason_ && builder_.reasons() != was_reasoning_) {
    was_reasoning_ = builder_.reasons();
    if (was_reasoning_) force_end();
  }
  filter_content();
  return delta_;
}

void ChatTurn::end_reasoning() {
  may_reason_ = false;
  was_reasoning_ = builder_.reasons();
  if (was_reasoning_) force_end();
}

void ChatTurn::force_end() {
  using chat::AfterReasoning;
  // Where functions are offered it may call one instead of answering; it has that choice once.
  const bool free = options_.may_call && ends_forced_++ == 0;
  // The engine is some tokens ahead: at once, unless the reasoning has ended there by itself.
  token_constraints_ = engine::TokenConstraints{
      .tokens = model_.chat->reasoning_end(free ? AfterReasoning::kFreeMessage
                                                : AfterReasoning::kFinalAnswer),
      .position = 0,
      .unless = model_.chat->reasoning().ends,
      .since = static_cast<int>(sampled_tokens_)};
}

// From what was sampled to what may be shown.
void ChatTurn::filter_content() {
  if (delta_.content.empty()) return;
  content_sampled_ += delta_.content.size();
  if (stop_filter_.stops_nothing()) {
    content_out_ += delta_.content.size();
    content_ += delta_.content;
    return;
  }
  scratch_.clear();
  stop_filter_.push(delta_.content, sampled_tokens_, scratch_);
  content_out_ += scratch_.size();
  content_ += scratch_;
  delta_.content.swap(scratch_);
}

const chat::ReplyDelta& ChatTurn::end(const engine::StreamEnd& end) {
  const bool was_stopped = stopped();
  const bool by_length = end.reason == engine::FinishReason::kLength && !was_stopped;
  reply_ =
      builder_.finish(by_length ? chat::StopCause::kLength : chat::StopCause::kStopToken, delta_);
  if (was_stopped) {
    delta_.clear();
  } else {
    filter_content();
    const size_t before = delta_.content.size();
    stop_filter_.finish(delta_.content);
    content_.append(delta_.content, before);
    content_out_ = content_.size();
  }
  if (reply_.content) reply_.content = std::move(content_);
  if (reasoning_hidden_ > 0 && reply_.reasoning) {
    reply_.reasoning->erase(0, reasoning_hidden_);
    if (reply_.reasoning->empty()) reply_.reasoning.reset();
  }
  if (stopped()) {
    reply_.finish = chat::ReplyFinish::kStop;
  } else if (end.reason == engine::FinishReason::kStop) {
    keep();
  }
  return delta_;
}

// Only what the client's words stand for entirely.
void ChatTurn::keep() {
  if (!options_.place || !reply_.warnings.empty() || reply_.tool_calls.size() > 1) return;
  std::vector<TokenId> turn = model_.chat->cacheable_turn(std::move(turn_));
  if (turn.empty()) return;
  TurnCache::Words words;
  if (reply_.content) words.content = *reply_.content;
  if (reply_.reasoning) words.reasoning = *reply_.reasoning;
  if (!reply_.tool_calls.empty()) {
    const chat::ToolCall& call = reply_.tool_calls[0];
    words.call.emplace(call.name, call.arguments);
  }
  options_.place->turns->keep(options_.place->history, words, std::move(turn));
}

}  // namespace pelton::server
