// One choice of a chat answer: a ChatTurn as the deltas of a stream or one message. Whole and
// streamed choices run the same code and are therefore equal. Owned by its ChatAnswer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/chat_response.h"
#include "server/answer.h"
#include "server/chat_turn.h"
#include "server/held_logprobs.h"
#include "server/served_model.h"

namespace pelton::server {

class ChatChoice {
 public:
  // The same for all choices of one answer, which owns them.
  struct Options {
    ChatTurn::Options turn;
    bool hides_reasoning = false;  // unless there is nothing else to show
    bool logprobs = false;
    bool tokens_as_ids = false;  // there
    bool stream = false;
    bool legacy_calls = false;  // of "functions": the finish reason is "function_call"
    uint64_t call_id_seed = 0;
    bool token_ids = false;               // reported
    std::vector<TokenId> stop_token_ids;  // of the request: that one of them ended it is reported
  };

  ChatChoice(const ServedModel& model, const Options& options, int index);
  ChatChoice(const ChatChoice&) = delete;
  ChatChoice& operator=(const ChatChoice&) = delete;

  Answer::Wants push(const engine::SampledToken& token);
  void end(const engine::StreamEnd& end);

  // `prompt`: sent with the first event; null: not reported.
  void take_events(const api::ChatChunks& chunks, const std::vector<TokenId>* prompt,
                   std::string& out);
  api::ChatChoice take_whole();

  std::optional<engine::TokenConstraints> take_token_constraints() {
    return turn_.take_token_constraints();
  }
  void end_reasoning() { turn_.end_reasoning(); }

  int64_t sampled_tokens() const { return turn_.sampled_tokens(); }
  int64_t reasoning_tokens() const { return turn_.reply().reasoning_tokens; }  // at the end

 private:
  // What take_events has not handed out yet.
  struct Pending {
    std::string reasoning;
    std::string content;
    std::vector<chat::ToolCallDelta> tool_calls;
    std::vector<api::TokenLogprobs> logprobs;
    std::vector<TokenId> token_ids;
    bool empty() const;
    void clear();
  };

  void add(const chat::ReplyDelta& delta);
  void add_call(const chat::ToolCallDelta& delta);
  void release_logprobs(size_t content_end);
  void take_delta(const api::ChatChunks& chunks, std::string& out);

  const ServedModel& model_;
  const Options& options_;
  const int index_;
  // What every token touches stands together: of hundreds of choices each is cold.
  TokenId last_token_ = -1;
  bool said_ = false;  // content or a call
  bool role_sent_ = false;
  bool finish_sent_ = false;
  std::string_view finish_reason_;  // empty before the end
  HeldLogprobs held_logprobs_;
  std::string hidden_reasoning_;  // of a stream, while nothing is said
  Pending pending_;
  ChatTurn turn_;
  // Until here.

  std::vector<api::TokenLogprobs> logprobs_;  // of a whole answer
  std::vector<std::string> call_ids_;
  api::StopReason stop_reason_;
  std::vector<TokenId> token_ids_;  // of a whole answer
};

// What the vocabulary says of a sampled token and its alternatives.
enum class TokenNames { kText, kIds };
api::TokenLogprobs token_logprobs(const tokenizer::Tokenizer& tokenizer,
                                  const engine::SampledToken& token, TokenNames names);
inline api::TokenLogprobs token_logprobs(const tokenizer::Tokenizer& tokenizer,
                                         const engine::SampledToken& token) {
  return token_logprobs(tokenizer, token, TokenNames::kText);
}
std::vector<api::PromptTokenLogprobs> prompt_logprobs(
    const tokenizer::Tokenizer& tokenizer, const std::vector<engine::PromptToken>& scored);

// What "stop_reason" says of an answer that no stop string ended.
api::StopReason stop_reason_of(const engine::StreamEnd& end, TokenId last_token,
                               const std::vector<TokenId>& stop_token_ids);

}  // namespace pelton::server
