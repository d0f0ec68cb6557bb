// A response, whole or streamed, with its beginning and its end. Its parts are in
// response_output.h.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "api/response_object.h"
#include "base/clock.h"
#include "base/function_ref.h"
#include "server/answer.h"
#include "server/chat_turn.h"
#include "server/response_output.h"
#include "server/served_model.h"

namespace pelton::server {

class ResponseAnswer final : public Answer {
 public:
  // What is left of it when it has ended, for whoever keeps it.
  struct Ended {
    const std::string& body;  // the response object
    const std::vector<api::OutputItem>& items;
    std::vector<TokenId> turn;  // as the next prompt holds it; empty: it is rendered anew
    bool failed = false;
    base::FunctionRef<void()> say_unstored;  // in `body`: it could not be kept
  };

  struct Options {
    api::ResponseHead head;
    ResponseOutput::Options output;
    std::vector<TokenId> opening;  // what stands in the prompt after the turn's start
    ChatTurn::Place place;
    bool timings = false;
    std::function<void(Ended)> on_ended;  // once, unless its client leaves; may be empty
  };

  ResponseAnswer(const ServedModel& model, Options options, const base::Clock& clock);

  Wants push(size_t choice, const engine::SampledToken& token) override;
  void end(size_t choice, const engine::StreamEnd& end) override;
  void take_events(std::string& out) override;
  void take_last_events(std::string& out) override;
  void fail(const api::ApiError& error, const engine::StreamEnd& end) override;
  void append_error(const api::ApiError& error, std::string& out) override;
  std::string whole_body() override { return std::move(body_); }

 private:
  api::Usage usage(const engine::StreamEnd& end) const;
  std::vector<TokenId> keep_turn();
  void report_end(const api::ResponseState& state, std::vector<TokenId> turn);

  const ServedModel& model_;
  Options options_;
  const base::Clock& clock_;
  ResponseOutput output_;
  std::vector<TokenId> turn_;  // the opening, then what was sampled
  int64_t sampled_tokens_ = 0;
  std::string prologue_;  // the stream's first events, until they are taken
  api::ResponseStatus status_ = api::ResponseStatus::kInProgress;
  std::string body_;  // at the end
};

}  // namespace pelton::server
