// The answer to POST /v1/messages: a ChatTurn as blocks of thinking, text and tool use, one after
// the other, whole or streamed by the same code. Owned by its Generation.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/messages_request.h"
#include "api/messages_response.h"
#include "server/answer.h"
#include "server/chat_turn.h"
#include "server/served_model.h"

namespace pelton::server {

class MessagesAnswer final : public Answer {
 public:
  using Thinking = api::MessagesRequest::Thinking;

  struct Options {
    api::MessageHead head;
    ChatTurn::Options turn;
    int64_t prompt_tokens = 0;
    Thinking thinking = Thinking::kNone;
    bool timings = false;
    bool stream = false;
    uint64_t tool_id_seed = 0;
    // A block of thinking that has ended -> its signature.
    std::function<std::string(std::string_view thinking)> sign;
  };

  MessagesAnswer(const ServedModel& model, Options options);

  Wants push(size_t choice, const engine::SampledToken& token) override;
  void end(size_t choice, const engine::StreamEnd& end) override;
  void take_events(std::string& out) override;
  void take_last_events(std::string& out) override;
  std::string whole_body() override;
  void append_error(const api::ApiError& error, std::string& out) override;
  std::string_view quiet_event() const override { return api::kMessagePing; }

 private:
  using Block = api::MessageBlock;

  void add(const chat::ReplyDelta& delta);
  void add_thinking(std::string_view text);
  void add_thought(std::string_view text);
  void add_text(Block::Kind kind, std::string_view text);
  void begin_block(Block::Kind kind);
  void add_call(const chat::ToolCallDelta& call);
  void open(Block block);
  void close();
  void flush();
  api::MessageEnd message_end() const;

  const Options options_;
  ChatTurn turn_;
  std::vector<Block> blocks_;  // in a stream their texts have gone out
  bool open_ = false;          // the last of them grows
  std::string thinking_;       // that is not shown, in case nothing else is
  std::string thought_;        // of the open block of thinking, shown or not
  std::string pending_;        // of the open block, not yet an event
  std::string events_;         // not yet taken
  size_t calls_ = 0;
  api::MessageStop stop_;
  api::Usage usage_;
  std::optional<api::Timings> timings_;  // if they were asked for, at the end
};

}  // namespace pelton::server
