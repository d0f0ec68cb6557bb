// A response, whole or streamed, with its beginning and its end. Its parts are in
// response_output.h.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "access/request_record.h"
#include "api/response_object.h"
#include "base/clock.h"
#include "base/function_ref.h"
#include "server/answer.h"
#include "server/chat_turn.h"
#include "server/response_output.h"
#include "server/served_model.h"

namespace pelton::server {

class ResponseRounds;

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
    std::shared_ptr<ResponseRounds> rounds = nullptr;  // null: the server runs no tool for it
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
  bool goes_on() const override { return goes_on_; }
  void begin_waiting(std::weak_ptr<Generation> generation) override;

  // Of the round of sampling that has just ended, and whose last item is a call.
  std::span<const api::OutputItem> round_items() const { return output_.round_items(); }
  int64_t round_tokens() const { return round_tokens_; }
  // The call's result is there; then the model goes on behind `history`, and what the prompt has of
  // its turn.
  void end_call(std::string_view text, bool failed) { output_.end_call(text, failed); }
  void begin_round(const RollingHash& history, const std::vector<TokenId>& opening);

 private:
  void add_usage(const engine::StreamEnd& end);
  std::vector<TokenId> keep_turn();
  void report_end(const api::ResponseState& state, std::vector<TokenId> turn);

  const ServedModel& model_;
  Options options_;
  const base::Clock& clock_;
  ResponseOutput output_;
  std::vector<TokenId> turn_;  // the opening, then what was sampled
  int64_t round_tokens_ = 0;   // sampled in this round
  bool goes_on_ = false;       // a call is being run, the next round to come
  bool has_rounds_ = false;    // there was one before this
  api::Usage usage_;           // of all rounds that have ended
  access::GenerationFacts facts_;
  std::string prologue_;  // the stream's first events, until they are taken
  api::ResponseStatus status_ = api::ResponseStatus::kInProgress;
  std::string body_;  // at the end
};

}  // namespace pelton::server
