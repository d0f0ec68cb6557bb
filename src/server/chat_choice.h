// One choice of a chat answer: sampled tokens through chat::ReplyBuilder and the stop strings, into
// the deltas of a stream or one message. Whole and streamed choices run the same code and are
// therefore equal. Owned by its ChatAnswer.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat_response.h"
#include "chat/reply.h"
#include "server/answer.h"
#include "server/sampled_turns.h"
#include "server/served_model.h"
#include "server/stop_filter.h"

namespace pelton::server {

class ChatChoice {
 public:
  // Where the whole turn is kept at its end.
  struct Place {
    SampledTurns* turns = nullptr;  // outlives the answer
    SequenceName history;           // of what stands before the turn
  };

  // The same for all choices of one answer, which owns them.
  struct Options {
    std::vector<std::string> stop;
    StopFilter::StopText stop_text = StopFilter::StopText::kCut;
    bool logprobs = false;
    bool stream = false;
    uint64_t call_id_seed = 0;
    std::vector<TokenId> opening;  // what stands in the prompt after "<|start|>assistant"
    std::optional<Place> place;    // none: it is not kept
  };

  ChatChoice(const ServedModel& model, const Options& options, int index);
  ChatChoice(const ChatChoice&) = delete;
  ChatChoice& operator=(const ChatChoice&) = delete;

  Answer::Wants push(const engine::SampledToken& token);
  void end(const engine::StreamEnd& end);

  void take_events(const api::ChatChunks& chunks, std::string& out);
  api::ChatChoice take_whole();

  int64_t sampled_tokens() const { return sampled_tokens_; }
  int64_t reasoning_tokens() const { return reply_.reasoning_tokens; }  // after the end

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
  void take_delta(const api::ChatChunks& chunks, std::string& out);
  void keep_turn();

  const ServedModel& model_;
  const Options& options_;
  const int index_;
  chat::ReplyBuilder builder_;
  chat::ReplyDelta delta_;  // reused
  StopFilter stop_filter_;

  Pending pending_;
  bool role_sent_ = false;
  bool finish_sent_ = false;
  size_t content_sampled_ = 0;  // bytes that came out of the builder
  std::string content_;         // that came out of the stop filter
  std::vector<HeldLogprob> held_logprobs_;
  std::vector<api::TokenLogprobs> logprobs_;  // of a whole answer
  std::vector<std::string> call_ids_;
  std::vector<TokenId> turn_;  // the opening, then what was sampled
  int64_t sampled_tokens_ = 0;

  chat::Reply reply_;               // after the end
  std::string_view finish_reason_;  // empty before
  std::string scratch_;
};

// What the vocabulary says of a sampled token and its alternatives.
api::TokenLogprobs token_logprobs(const tokenizer::Tokenizer& tokenizer,
                                  const engine::SampledToken& token);

}  // namespace pelton::server
