// The answer to Ollama's /api/chat and /api/generate: a ChatTurn as a JSON object on each line,
// whole or streamed by the same code. Owned by its Generation.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/ollama_response.h"
#include "base/clock.h"
#include "server/answer.h"
#include "server/chat_turn.h"
#include "server/held_logprobs.h"
#include "server/served_model.h"
#include "server/text_answer.h"

namespace pelton::server {

inline constexpr std::string_view kNdjson = "application/x-ndjson";

// What both answers, of a chat and of a plain text, begin with.
struct OllamaAnswerHead {
  api::OllamaHead head;
  int64_t arrived_ns = 0;
  const base::Clock* clock = nullptr;  // outlives the answer
  bool shows_logprobs = false;
};

class OllamaAnswer final : public Answer {
 public:
  struct Options {
    OllamaAnswerHead head;
    ChatTurn::Options turn;
    bool shows_thinking = true;
    bool stream = false;
  };

  OllamaAnswer(const ServedModel& model, Options options);

  Wants push(size_t choice, const engine::SampledToken& token) override;
  void end(size_t choice, const engine::StreamEnd& end) override;
  void take_events(std::string& out) override;
  void take_last_events(std::string& out) override;
  std::string whole_body() override;
  void append_error(const api::ApiError& error, std::string& out) override;
  std::string_view content_type() const override { return kNdjson; }
  std::string_view quiet_event() const override { return quiet_; }

 private:
  void add(const chat::ReplyDelta& delta);
  void close_call();
  void append(const api::OllamaEnd* end, std::string& out);

  const ServedModel& model_;
  const Options options_;
  ChatTurn turn_;
  HeldLogprobs held_logprobs_;
  std::string content_;  // not yet taken, as the next three: all of it in a whole answer
  std::string thinking_;
  std::vector<api::TokenLogprobs> logprobs_;
  std::vector<api::OllamaCall> calls_;  // a call goes out when all of it is there
  std::optional<api::OllamaCall> open_call_;
  api::OllamaEnd end_;
  std::string quiet_;
};

// Of a prompt that goes through no template.
std::unique_ptr<TextWriter> ollama_text_writer(OllamaAnswerHead head);

// {"error": …} on a line.
void append_ollama_error(const api::ApiError& error, std::string& out);

}  // namespace pelton::server
