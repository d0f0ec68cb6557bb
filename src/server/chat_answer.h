// A chat answer: sampled tokens through chat::ReplyBuilder and the stop strings, into the deltas of
// a stream or one message. Whole and streamed answers run the same code and are therefore equal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/chat_response.h"
#include "chat/reply.h"
#include "server/answer.h"
#include "server/sampled_turns.h"
#include "server/served_model.h"
#include "server/stop_filter.h"

namespace pelton::server {

class ChatAnswer final : public Answer {
 public:
  // Where the whole turn is kept at its end.
  struct Place {
    SampledTurns* turns = nullptr;  // outlives the answer
    SequenceName history;           // of what stands before the turn
  };

  struct Options {
    api::ChatAnswerHead head;
    std::vector<std::string> stop;
    StopFilter::StopText stop_text = StopFilter::StopText::kCut;
    bool logprobs = false;
    bool stream = false;
    bool include_usage = false;
    uint64_t call_id_seed = 0;
    std::vector<TokenId> opening;  // what stands in the prompt after "<|start|>assistant"
    std::optional<Place> place;    // none: it is not kept
  };

  ChatAnswer(const ServedModel& model, Options options);

  Wants push(size_t choice, const engine::SampledToken& token) override;
  void end(size_t choice, const engine::StreamEnd& end) override;
  void take_events(std::string& out) override;
  void take_last_events(std::string& out) override;
  std::string whole_body() override;

 private:
  // What take_events has not handed out yet.
  struct Pending {
    std::string reasoning;
    std::string content;
    std::vector<chat::ToolCallDelta> tool_calls;
    std::vector<api::TokenLogprobs> logprobs;
    bool empty() const;
  };
  struct HeldLogprob {
    size_t content_offset;  // where its token's text begins
    api::TokenLogprobs logprobs;
  };

  void add(const chat::ReplyDelta& delta);
  void add_call(const chat::ToolCallDelta& delta);
  void release_logprobs(size_t content_end);
  void keep_turn();

  const ServedModel& model_;
  const Options options_;
  const api::ChatChunks chunks_;
  chat::ReplyBuilder builder_;
  chat::ReplyDelta delta_;  // reused
  StopFilter stop_filter_;

  Pending pending_;
  bool role_sent_ = false;
  size_t content_sampled_ = 0;  // bytes that came out of the builder
  std::string content_;         // that came out of the stop filter
  std::vector<HeldLogprob> held_logprobs_;
  std::vector<api::TokenLogprobs> logprobs_;  // of a whole answer
  std::vector<std::string> call_ids_;
  std::vector<TokenId> turn_;  // the opening, then what was sampled

  chat::Reply reply_;  // after the end
  api::Usage usage_;
  std::string_view finish_reason_;
  std::string scratch_;
};

// What the vocabulary says of a sampled token and its alternatives.
api::TokenLogprobs token_logprobs(const tokenizer::Tokenizer& tokenizer,
                                  const engine::SampledToken& token);

}  // namespace pelton::server
