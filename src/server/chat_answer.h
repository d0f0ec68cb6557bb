// A chat answer of one or more choices, whole or streamed. Its parts are in chat_choice.h.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "access/request_record.h"
#include "api/chat_response.h"
#include "server/answer.h"
#include "server/chat_choice.h"
#include "server/served_model.h"

namespace pelton::server {

class ChatAnswer final : public Answer {
 public:
  struct Options {
    api::ChatAnswerHead head;
    int choice_count = 1;
    bool include_usage = false;
    bool continuous_usage = false;  // in each chunk, as far as it has come
    int64_t prompt_tokens = 0;      // reported there
    bool timings = false;
    std::vector<TokenId> prompt_token_ids;  // reported if the choices' are
    bool prompt_logprobs = false;           // in a stream, as a chunk of their own
    bool has_prediction = false;            // usage says what of it was accepted
    ChatChoice::Options choice;
  };

  ChatAnswer(const ServedModel& model, Options options);

  void prompt(size_t choice, std::vector<engine::PromptToken> scored) override;
  Wants push(size_t choice, const engine::SampledToken& token) override;
  void end(size_t choice, const engine::StreamEnd& end) override;
  std::optional<engine::TokenConstraints> take_token_constraints(size_t choice) override {
    return choices_.at(choice).take_token_constraints();
  }
  void end_reasoning() override {
    for (ChatChoice& choice : choices_) choice.end_reasoning();
  }
  void take_events(std::string& out) override;
  void take_last_events(std::string& out) override;
  std::string whole_body() override;

 private:
  // Null if it is not reported.
  const std::vector<TokenId>* emitted_prompt() const {
    return options_.choice.token_ids ? &options_.prompt_token_ids : nullptr;
  }
  void take_counted_events(std::string& out);
  void take_prompt_event(std::string& out);

  const ServedModel& model_;
  const Options options_;
  api::ChatChunks chunks_;
  std::deque<ChatChoice> choices_;
  std::vector<int64_t> tokens_emitted_;  // of each choice, where each chunk has them
  std::vector<api::PromptTokenLogprobs> prompt_logprobs_;
  bool prompt_logprobs_due_ = false;
  api::Usage usage_;
  access::GenerationFacts facts_;
};

}  // namespace pelton::server
