#include "server/messages_answer.h"

#include <utility>

#include "server/generation_facts.h"
#include "server/random_id.h"

namespace pelton::server {
namespace {

std::string_view stop_word(const ChatTurn& turn) {
  if (turn.stopped()) return "stop_sequence";
  switch (turn.reply().finish) {
    case chat::ReplyFinish::kStop:
      return "end_turn";
    case chat::ReplyFinish::kToolCalls:
      return "tool_use";
    case chat::ReplyFinish::kLength:
      return "max_tokens";
  }
  return "end_turn";
}

}  // namespace

MessagesAnswer::MessagesAnswer(const ServedModel& model, Options options)
    : options_(std::move(options)), turn_(model, options_.turn) {
  if (options_.stream) {
    api::append_message_start(options_.head, options_.prompt_tokens, events_);
    events_ += api::kMessagePing;
  }
  add(turn_.begin());
}

Answer::Wants MessagesAnswer::push(size_t, const engine::SampledToken& token) {
  add(turn_.push(token.token));
  return turn_.stopped() ? Wants::kNothing : Wants::kMore;
}

void MessagesAnswer::add(const chat::ReplyDelta& delta) {
  // What still belongs to the open call stands before all that begins.
  auto call = delta.tool_calls.begin();
  for (; call != delta.tool_calls.end() && !call->begins; ++call) add_call(*call);
  add_thinking(delta.reasoning);
  add_text(Block::Kind::kText, delta.content);
  for (; call != delta.tool_calls.end(); ++call) add_call(*call);
}

void MessagesAnswer::add_thinking(std::string_view text) {
  switch (options_.thinking) {
    case Thinking::kShown:
    case Thinking::kOmitted:
      return add_thought(text);
    case Thinking::kNone:
      if (blocks_.empty()) thinking_ += text;
  }
}

void MessagesAnswer::add_thought(std::string_view text) {
  if (text.empty()) return;
  begin_block(Block::Kind::kThinking);
  thought_ += text;
  if (options_.thinking != Thinking::kOmitted) pending_ += text;
}

void MessagesAnswer::add_text(Block::Kind kind, std::string_view text) {
  if (text.empty()) return;
  begin_block(kind);
  pending_ += text;
}

// A block of this kind, unless one is open.
void MessagesAnswer::begin_block(Block::Kind kind) {
  if (open_ && blocks_.back().kind == kind) return;
  close();
  open({.kind = kind, .text = {}, .id = {}, .name = {}, .signature = {}});
}

void MessagesAnswer::add_call(const chat::ToolCallDelta& call) {
  if (call.begins) {
    close();
    open({.kind = Block::Kind::kToolUse,
          .text = {},
          .id = random_id("toolu_", {.seed = options_.tool_id_seed, .counter = calls_++}),
          .name = call.name,
          .signature = {}});
  }
  pending_ += call.arguments;
}

void MessagesAnswer::open(Block block) {
  thinking_.clear();
  blocks_.push_back(std::move(block));
  open_ = true;
  if (options_.stream) api::append_block_start(blocks_.size() - 1, blocks_.back(), events_);
}

void MessagesAnswer::close() {
  if (!open_) return;
  flush();
  open_ = false;
  Block& block = blocks_.back();
  if (block.kind == Block::Kind::kThinking) {
    block.signature = options_.sign(std::exchange(thought_, {}));
  }
  if (options_.stream) api::append_block_stop(blocks_.size() - 1, block, events_);
}

// All that has come for the open block is one event.
void MessagesAnswer::flush() {
  if (pending_.empty()) return;
  Block& block = blocks_.back();
  if (options_.stream) {
    api::append_block_delta(blocks_.size() - 1, block.kind, pending_, events_);
    pending_.clear();
  } else {
    block.text += std::exchange(pending_, {});
  }
}

void MessagesAnswer::end(size_t, const engine::StreamEnd& end) {
  add(turn_.end(end));
  // Cut off amid thoughts that nobody asked for: better than nothing.
  if (blocks_.empty() && !thinking_.empty()) {
    const std::string thinking = std::exchange(thinking_, {});
    add_thought(thinking);
  }
  if (blocks_.empty()) open({});
  close();
  stop_.reason = stop_word(turn_);
  if (turn_.stopped()) stop_.stop_sequence = turn_.stop_string();
  usage_ = {.prompt_tokens = end.prompt_tokens,
            .cached_tokens = end.cached_tokens,
            .completion_tokens = turn_.sampled_tokens(),
            .reasoning_tokens = turn_.reply().reasoning_tokens};
  if (!options_.timings) return;
  access::GenerationFacts facts;
  add_answer(facts, end);
  timings_ = timings_of(facts);
}

api::MessageEnd MessagesAnswer::message_end() const {
  return {.stop = stop_, .usage = usage_, .timings = timings_ ? &*timings_ : nullptr};
}

void MessagesAnswer::take_events(std::string& out) {
  flush();
  out += events_;
  events_.clear();
}

void MessagesAnswer::take_last_events(std::string& out) {
  take_events(out);
  api::append_message_end(message_end(), out);
}

std::string MessagesAnswer::whole_body() {
  return api::message_body(options_.head, blocks_, message_end());
}

void MessagesAnswer::append_error(const api::ApiError& error, std::string& out) {
  out += "event: error\ndata: ";
  out += api::message_error_body(error, options_.head.id);
  out += "\n\n";
}

}  // namespace pelton::server
