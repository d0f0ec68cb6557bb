#include "server/chat_choice.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/random.h"
#include "server/random_id.h"
#include "server/sse_event.h"

namespace pelton::server {
namespace {

std::string_view finish_word(chat::ReplyFinish finish, bool legacy_calls) {
  switch (finish) {
    case chat::ReplyFinish::kStop:
      return "stop";
    case chat::ReplyFinish::kToolCalls:
      return legacy_calls ? "function_call" : "tool_calls";
    case chat::ReplyFinish::kLength:
      return "length";
  }
  return "stop";
}

}  // namespace

api::TokenLogprobs token_logprobs(const tokenizer::Tokenizer& tokenizer,
                                  const engine::SampledToken& token, TokenNames names) {
  api::TokenLogprobs logprobs;
  logprobs.token.bytes = tokenizer.bytes(token.token);
  logprobs.token.logprob = token.logprob;
  if (names == TokenNames::kIds) logprobs.token.id = token.token;
  for (const auto& [id, logprob] : token.top) {
    api::ScoredToken& other = logprobs.top.emplace_back();
    other.bytes = tokenizer.bytes(id);
    other.logprob = logprob;
    if (names == TokenNames::kIds) other.id = id;
  }
  return logprobs;
}

std::vector<api::PromptTokenLogprobs> prompt_logprobs(
    const tokenizer::Tokenizer& tokenizer, const std::vector<engine::PromptToken>& scored) {
  std::vector<api::PromptTokenLogprobs> reported;
  const auto named = [&](TokenId id, float logprob) {
    return api::ScoredToken{
        .bytes = std::string(tokenizer.bytes(id)), .logprob = logprob, .id = id};
  };
  reported.reserve(scored.size());
  for (const engine::PromptToken& one : scored) {
    api::PromptTokenLogprobs& token = reported.emplace_back();
    token.token = named(one.scored.token, one.scored.logprob);
    token.rank = one.rank;
    for (const auto& [id, logprob] : one.scored.top) token.top.push_back(named(id, logprob));
  }
  return reported;
}

api::StopReason stop_reason_of(const engine::StreamEnd& end, TokenId last_token,
                               const std::vector<TokenId>& stop_token_ids) {
  const bool theirs =
      end.reason == engine::FinishReason::kStop &&
      std::find(stop_token_ids.begin(), stop_token_ids.end(), last_token) != stop_token_ids.end();
  return theirs ? api::StopReason(last_token) : api::StopReason();
}

// What small strings hold serves the next ones.
void ChatChoice::Pending::clear() {
  constexpr size_t kBytesKept = 256;
  for (std::string* const text : {&reasoning, &content}) {
    text->clear();
    if (text->capacity() > kBytesKept) text->shrink_to_fit();
  }
  if (!tool_calls.empty()) tool_calls = {};
  if (!logprobs.empty()) logprobs = {};
  if (!token_ids.empty()) token_ids = {};
}

bool ChatChoice::Pending::empty() const {
  return reasoning.empty() && content.empty() && tool_calls.empty() && logprobs.empty() &&
         token_ids.empty();
}

ChatChoice::ChatChoice(const ServedModel& model, const Options& options, int index)
    : model_(model), options_(options), index_(index), turn_(model, options.turn) {
  add(turn_.begin());
}

Answer::Wants ChatChoice::push(const engine::SampledToken& token) {
  const size_t content_before = turn_.content_sampled();
  const chat::ReplyDelta& delta = turn_.push(token.token);
  if (options_.logprobs && delta.kind == chat::ReplyDelta::Kind::kContent) {
    held_logprobs_.hold(content_before, token_logprobs(model_.tokenizer, token,
                                                       options_.tokens_as_ids ? TokenNames::kIds
                                                                              : TokenNames::kText));
  }
  last_token_ = token.token;
  if (options_.token_ids) {
    (options_.stream ? pending_.token_ids : token_ids_).push_back(token.token);
  }
  add(delta);
  return turn_.stopped() ? Answer::Wants::kNothing : Answer::Wants::kMore;
}

void ChatChoice::add(const chat::ReplyDelta& delta) {
  release_logprobs(turn_.content_out());
  if (options_.stream) {
    (options_.hides_reasoning ? hidden_reasoning_ : pending_.reasoning) += delta.reasoning;
    pending_.content += delta.content;
  }
  if (!delta.content.empty() || !delta.tool_calls.empty()) said_ = true;
  if (said_) hidden_reasoning_.clear();
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

void ChatChoice::release_logprobs(size_t content_end) {
  held_logprobs_.release(content_end, options_.stream ? pending_.logprobs : logprobs_);
}

void ChatChoice::end(const engine::StreamEnd& end) {
  add(turn_.end(end));
  // Half a code point's tokens may stand at the very end, with no text of their own.
  if (!turn_.stopped()) release_logprobs(turn_.content_out() + 1);
  // Cut off amid thoughts that nobody asked for: better than nothing.
  pending_.reasoning += std::exchange(hidden_reasoning_, {});
  finish_reason_ = end.reason == engine::FinishReason::kRepetition
                       ? "repetition"
                       : finish_word(turn_.reply().finish, options_.legacy_calls);
  stop_reason_ = turn_.stopped() ? api::StopReason(turn_.stop_string())
                                 : stop_reason_of(end, last_token_, options_.stop_token_ids);
}

void ChatChoice::take_events(const api::ChatChunks& chunks, const std::vector<TokenId>* prompt,
                             std::string& out) {
  if (!role_sent_) {
    role_sent_ = true;
    append_sse_event(out, [&](std::string& json) {
      chunks.delta({.choice = index_, .role = true, .prompt_token_ids = prompt}, json);
    });
  }
  if (!pending_.empty()) take_delta(chunks, out);
  if (finish_reason_.empty() || finish_sent_) return;
  finish_sent_ = true;
  append_sse_event(
      out, [&](std::string& json) { chunks.finish(index_, finish_reason_, stop_reason_, json); });
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
                             .logprobs = &pending_.logprobs,
                             .token_ids = options_.token_ids ? &pending_.token_ids : nullptr};
  append_sse_event(out, [&](std::string& json) { chunks.delta(delta, json); });
  pending_.clear();
}

api::ChatChoice ChatChoice::take_whole() {
  chat::Reply& reply = turn_.reply();
  api::ChatChoice whole{.content = std::move(reply.content),
                        .reasoning = std::move(reply.reasoning),
                        .tool_calls = {},
                        .logprobs = {},
                        .finish_reason = finish_reason_};
  if (options_.hides_reasoning && said_) whole.reasoning.reset();
  for (size_t i = 0; i < reply.tool_calls.size(); ++i) {
    chat::ToolCall& call = reply.tool_calls[i];
    whole.tool_calls.push_back({call_ids_[i], std::move(call.name), std::move(call.arguments)});
  }
  if (options_.logprobs) whole.logprobs = std::move(logprobs_);
  whole.stop_reason = std::move(stop_reason_);
  if (options_.token_ids) whole.token_ids = std::move(token_ids_);
  return whole;
}

}  // namespace pelton::server
