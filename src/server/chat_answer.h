// A chat answer of one or more choices, whole or streamed. Its parts are in chat_choice.h.
#pragma once

#include <deque>
#include <string>
#include <vector>

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
    int64_t prompt_tokens = 0;      // told there
    ChatChoice::Options choice;
  };

  ChatAnswer(const ServedModel& model, Options options);

  Wants push(size_t choice, const engine::SampledToken& token) override;
  void end(size_t choice, const engine::StreamEnd& end) override;
  void take_events(std::string& out) override;
  void take_last_events(std::string& out) override;
  std::string whole_body() override;

 private:
  void take_counted_events(std::string& out);

  const Options options_;
  api::ChatChunks chunks_;
  std::deque<ChatChoice> choices_;
  std::vector<int64_t> tokens_told_;  // of each choice, where each chunk tells them
  api::Usage usage_;
};

}  // namespace pelton::server
