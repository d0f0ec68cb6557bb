#include "server/fleet_exchange.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "cluster/envelope.h"
#include "cluster/frame.h"
#include "cluster/token_list.h"
#include "net/websocket.h"

namespace pelton::server {
namespace {

using cluster::append_frame;
using cluster::Frame;
using cluster::FrameType;

// Events of a WebSocket that its gateway has not taken: who goes on speaking is sent away.
constexpr size_t kUnreadBytesMax = size_t{4} << 20;

std::string_view reason_name(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kStop:
      return "stop";
    case engine::FinishReason::kLength:
      return "length";
    case engine::FinishReason::kRepetition:
      return "repetition";
    default:
      return "cancelled";
  }
}

std::string token_list_of(size_t first, const std::vector<engine::SampledToken>& tokens) {
  cluster::TokenList list{
      .first = static_cast<uint32_t>(first), .with_logprobs = false, .tokens = {}};
  for (const engine::SampledToken& token : tokens) {
    list.with_logprobs = list.with_logprobs || token.logprob != 0 || !token.top.empty();
    list.tokens.push_back({.token = token.token, .logprob = token.logprob, .top = token.top});
  }
  return encode(list);
}

cluster::AnswerHead head_of(int status, const net::HttpHeaders& headers) {
  return {.status = status, .headers = headers.fields()};
}

api::ApiError session_over() {
  return {.status = 410,
          .message = "the session is over",
          .type = "invalid_request_error",
          .param = {},
          .code = "session_over"};
}

}  // namespace

FleetExchange::FleetExchange(std::shared_ptr<net::Exchange> beneath, std::vector<size_t> said)
    : beneath_(std::move(beneath)), said_(std::move(said)) {}

api::ApiError FleetExchange::session_unknown() {
  return {.status = 404,
          .message = "there is no session of this gateway and dispatch",
          .type = "invalid_request_error",
          .param = {},
          .code = "session_not_found"};
}

// Dropped unanswered, or amid an answer: the gateway sees a body without an end.
FleetExchange::~FleetExchange() = default;

void FleetExchange::begin() {
  if (begun_) return;
  begun_ = true;
  net::HttpHeaders headers;
  headers.add("Content-Type", "application/x-pelton-frames");
  beneath_->start_stream(200, std::move(headers));
}

void FleetExchange::send_frames(const std::string& frames) {
  if (frames.empty()) return;
  begin();
  spoke_ = true;
  beneath_->write(frames);
}

void FleetExchange::begin_beats(std::function<bool()> leaves) {
  leaves_ = std::move(leaves);
  beneath_->post_after(kBeatTime, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->beat();
  });
}

// A gateway that does not read what has been said hears nothing more.
void FleetExchange::beat() {
  if (over_ || ended_ || beneath_->closed()) return;
  if (!std::exchange(spoke_, false) && beneath_->queued_bytes() == 0) {
    std::string frames;
    append_frame(frames, {.type = FrameType::kBeat, .flags = Frame::kOptional, .payload = {}});
    send_frames(frames);
    spoke_ = false;
  }
  if (leaves_ && leaves_()) drain();
  begin_beats(std::move(leaves_));
}

void FleetExchange::drain() {
  if (over_ || !socket_ || std::exchange(drained_, true)) return;
  if (socket_->on_drain) socket_->on_drain();
}

void FleetExchange::send(net::HttpResponse response) {
  if (over_) return;
  over_ = true;
  std::string frames;
  append_sampled(frames);
  append_frame(frames, {.type = FrameType::kHead,
                        .flags = Frame::kMore,
                        .payload = encode(head_of(response.status, response.headers))});
  append_frame(frames,
               {.type = FrameType::kBytes, .flags = Frame::kLast, .payload = response.body});
  send_frames(frames);
  end();
}

void FleetExchange::start_stream(int status, net::HttpHeaders headers) {
  if (over_) return;
  cluster::AnswerHead head = head_of(status, headers);
  head.streamed = true;
  std::string frames;
  append_frame(frames, {.type = FrameType::kHead, .flags = Frame::kMore, .payload = encode(head)});
  send_frames(frames);
}

// A message is JSON, and has no line feed but the one behind it.
void FleetExchange::write(std::string_view bytes) {
  if (over_) return;
  std::string frames;
  append_sampled(frames);
  const uint8_t flags = last_ ? Frame::kLast : 0;
  const std::string line = socket_ && !last_ ? std::string(bytes) + "\n" : std::string();
  append_frame(frames, {.type = FrameType::kBytes,
                        .flags = flags,
                        .payload = line.empty() ? bytes : std::string_view(line)});
  over_ = last_;
  send_frames(frames);
}

void FleetExchange::accept_websocket(net::HttpHeaders headers, WebSocket socket) {
  if (over_ || socket_) return;
  socket_ = std::move(socket);
  start_stream(200, std::move(headers));
}

void FleetExchange::finish_websocket(int code, std::string reason) {
  if (over_ || !socket_ || std::exchange(said_goodbye_, true)) return;
  write(fmt::format("!{} {}", code, reason));
  finish();
}

std::optional<api::ApiError> FleetExchange::goodbye(int code, std::string reason) {
  api::ApiError error = session_over();
  error.message += ": " + reason;
  finish_websocket(code, std::move(reason));
  return error;
}

std::optional<api::ApiError> FleetExchange::hear(Heard heard) {
  if (!socket_) return session_unknown();
  int64_t number = heard.first;
  for (std::string& message : heard.messages) {
    if (over_ || said_goodbye_ || beneath_->closed()) return session_over();
    if (number++ < heard_) continue;
    if (number - 1 > heard_) return goodbye(net::kCloseInternalError, "messages were lost");
    ++heard_;
    if (message.size() > socket_->message_bytes_max) {
      return goodbye(net::kCloseTooBig, "a message is too long");
    }
    if (beneath_->queued_bytes() > kUnreadBytesMax) {
      return goodbye(net::kClosePolicy, "answers are not being read");
    }
    socket_->on_message(std::move(message));
  }
  if (heard.drains) drain();
  return std::nullopt;
}

void FleetExchange::finish() {
  if (!over_ && socket_ && !std::exchange(said_goodbye_, true)) {
    write(fmt::format("!{} ", net::kCloseNormal));
  }
  if (!over_) {
    last_ = true;
    write({});
  }
  end();
}

// After a failure the answer itself still ends.
void FleetExchange::end() {
  if (!std::exchange(ended_, true)) beneath_->finish();
}

FleetExchange::Sampled& FleetExchange::sampled(size_t choice) {
  if (sampled_.size() <= choice) sampled_.resize(choice + 1);
  if (said_.size() <= choice) said_.resize(choice + 1);
  return sampled_[choice];
}

void FleetExchange::note_token(size_t choice, const engine::SampledToken& token) {
  sampled(choice).tokens.push_back(token);
}

void FleetExchange::note_end(size_t choice, const engine::StreamEnd& end) {
  sampled(choice).end = encode(cluster::ChoiceEnd{.reason = std::string(reason_name(end.reason)),
                                                  .prompt_tokens = end.prompt_tokens,
                                                  .cached_tokens = end.cached_tokens,
                                                  .output_tokens = end.output_tokens});
}

void FleetExchange::note_prompt(size_t prompt, const std::vector<TokenId>& tokens) {
  cluster::TokenList list;
  for (const TokenId token : tokens) list.tokens.push_back({.token = token});
  append_frame(prompts_, {.type = FrameType::kPrompt,
                          .flags = Frame::kMore,
                          .choice = static_cast<uint16_t>(prompt),
                          .payload = encode(list)});
}

// With the first token: nobody need know before.
void FleetExchange::note_adapter(std::string_view digest) {
  append_frame(
      prompts_,
      {.type = FrameType::kAdapter, .flags = Frame::kMore | Frame::kOptional, .payload = digest});
}

void FleetExchange::note_found(size_t choice, const engine::PromptFound& found) {
  const cluster::PromptFound said{.cached_tokens = found.cached_tokens,
                                  .host_tokens = found.by_tier[kv::kHost],
                                  .disk_tokens = found.by_tier[kv::kDisk],
                                  .peer_tokens = found.from_peer};
  append_frame(prompts_, {.type = FrameType::kFound,
                          .flags = Frame::kMore | Frame::kOptional,
                          .choice = static_cast<uint16_t>(choice),
                          .payload = encode(said)});
}

void FleetExchange::append_sampled(std::string& frames) {
  frames += prompts_;
  prompts_.clear();
  for (size_t i = 0; i < sampled_.size(); ++i) {
    Sampled& one = sampled_[i];
    const auto choice = static_cast<uint16_t>(i);
    if (!one.tokens.empty()) {
      append_frame(frames, {.type = FrameType::kTokens,
                            .flags = Frame::kMore,
                            .choice = choice,
                            .payload = token_list_of(said_[i], one.tokens)});
      said_[i] += one.tokens.size();
      one.tokens.clear();
    }
    if (one.end.empty()) continue;
    append_frame(frames, {.type = FrameType::kFinished,
                          .flags = Frame::kMore,
                          .choice = choice,
                          .payload = one.end});
    one.end.clear();
  }
}

void FleetExchange::flush() {
  const bool any = !prompts_.empty() || std::ranges::any_of(sampled_, [](const Sampled& one) {
    return !one.tokens.empty() || !one.end.empty();
  });
  if (any) write({});
}

// What was sampled and not sent the next worker samples again.
void FleetExchange::note_failure(const api::ApiError& error, std::string_view event) {
  if (over_) return;
  over_ = true;
  const cluster::AnswerError failure{
      .status = error.status, .message = error.message, .event = std::string(event)};
  std::string frames;
  append_frame(frames, {.type = FrameType::kError, .payload = encode(failure)});
  send_frames(frames);
  end();
}

}  // namespace pelton::server
