#include "server/grpc_answer.h"

#include <string>
#include <utility>

#include <pelton/v1/inference.pb.h>

#include "rpc/grpc_frame.h"
#include "server/random_id.h"
#include "tokenizer/incremental_decoder.h"

namespace pelton::server {
namespace {

using Wants = Answer::Wants;

void set_logprob(const engine::SampledToken& token, v1::TokenLogprob& scored) {
  scored.set_token(static_cast<uint32_t>(token.token));
  scored.set_logprob(static_cast<double>(token.logprob));
  for (const auto& [id, logprob] : token.top) {
    v1::TokenLogprob& other = *scored.add_top();
    other.set_token(static_cast<uint32_t>(id));
    other.set_logprob(static_cast<double>(logprob));
  }
}

void add_token(const engine::SampledToken& token, GrpcLogprobs logprobs, v1::GenerateChunk& chunk) {
  chunk.add_tokens(static_cast<uint32_t>(token.token));
  if (logprobs == GrpcLogprobs::kNo) return;
  set_logprob(token, *chunk.add_logprobs());
}

void set_usage(const engine::StreamEnd& end, int64_t sampled, v1::GenerateChunk& chunk) {
  v1::Usage& usage = *chunk.mutable_usage();
  usage.set_prompt_tokens(end.prompt_tokens);
  usage.set_cached_tokens(end.cached_tokens);
  usage.set_completion_tokens(sampled);
}

// Of one message: its tokens, and each of their alternatives. Some 30 to 60 bytes each.
constexpr size_t kMessageCostMax = 512;

// What the three kinds have in common: messages of bounded size.
class Messages {
 public:
  v1::GenerateChunk& open() {
    is_open_ = true;
    return chunk_;
  }
  // So much more is in the open one.
  void add_cost(size_t cost) {
    cost_ += cost;
    if (cost_ >= kMessageCostMax) close();
  }
  void take(std::string& frames) {
    if (is_open_) close();
    frames += frames_;
    frames_.clear();
  }

 private:
  void close() {
    rpc::append_grpc_frame({.bytes = chunk_.SerializeAsString()}, frames_);
    chunk_.Clear();
    cost_ = 0;
    is_open_ = false;
  }

  v1::GenerateChunk chunk_;
  size_t cost_ = 0;
  bool is_open_ = false;
  std::string frames_;
};

// Writes the tokens of one kind of prompt into messages.
class Writer {
 public:
  virtual ~Writer() = default;
  // What the token is and shows. kNothing: a stop string ended it.
  virtual Wants push(const engine::SampledToken& token, v1::GenerateChunk& chunk) = 0;
  // The rest, finish_reason and usage.
  virtual void end(const engine::StreamEnd& end, v1::GenerateChunk& chunk) = 0;
};

class GrpcAnswer final : public Answer {
 public:
  explicit GrpcAnswer(std::unique_ptr<Writer> writer) : writer_(std::move(writer)) {}

  Wants push(size_t /*choice*/, const engine::SampledToken& token) override {
    const Wants wants = writer_->push(token, messages_.open());
    messages_.add_cost(1 + token.top.size());
    return wants;
  }
  // How likely the prompt's tokens were, with the first piece of any answer.
  void prompt(size_t /*choice*/, std::vector<engine::PromptToken> scored) override {
    for (const engine::PromptToken& one : scored) {
      set_logprob(one.scored, *messages_.open().add_prompt_logprobs());
    }
  }
  void end(size_t /*choice*/, const engine::StreamEnd& end) override {
    writer_->end(end, messages_.open());
  }
  void take_events(std::string& out) override { messages_.take(out); }
  void take_last_events(std::string& out) override { messages_.take(out); }
  std::string whole_body() override { return {}; }
  void append_error(const api::ApiError& error, std::string& out) override {
    const std::string bytes = std::to_string(error.status) + " " + api::error_body(error);
    rpc::append_grpc_frame({.kind = rpc::GrpcFrame::Kind::kError, .bytes = bytes}, out);
  }
  std::string_view quiet_event() const override { return {}; }

 private:
  const std::unique_ptr<Writer> writer_;
  Messages messages_;
};

class TokensOut final : public Writer {
 public:
  explicit TokensOut(GrpcLogprobs logprobs) : logprobs_(logprobs) {}

  Wants push(const engine::SampledToken& token, v1::GenerateChunk& chunk) override {
    ++sampled_;
    add_token(token, logprobs_, chunk);
    return Wants::kMore;
  }
  void end(const engine::StreamEnd& end, v1::GenerateChunk& chunk) override {
    chunk.set_finish_reason(end.reason == engine::FinishReason::kLength ? "length" : "stop");
    set_usage(end, sampled_, chunk);
  }

 private:
  const GrpcLogprobs logprobs_;
  int64_t sampled_ = 0;
};

class TextOut final : public Writer {
 public:
  TextOut(const ServedModel& model, StopFilter stop, GrpcLogprobs logprobs)
      : model_(model), stop_(std::move(stop)), logprobs_(logprobs) {}

  Wants push(const engine::SampledToken& token, v1::GenerateChunk& chunk) override {
    ++sampled_;
    add_token(token, logprobs_, chunk);
    // A control token ends or structures a text; it is no part of it.
    if (!model_.tokenizer.is_special(token.token)) {
      scratch_.clear();
      decoder_.push(model_.tokenizer.bytes(token.token), scratch_);
      stop_.push(scratch_, sampled_, *chunk.mutable_text());
    }
    return stop_.stopped() ? Wants::kNothing : Wants::kMore;
  }
  void end(const engine::StreamEnd& end, v1::GenerateChunk& chunk) override {
    if (!stop_.stopped()) {
      scratch_.clear();
      decoder_.finish(scratch_);
      stop_.push(scratch_, sampled_, *chunk.mutable_text());
      stop_.finish(*chunk.mutable_text());
    }
    const bool by_length = end.reason == engine::FinishReason::kLength && !stop_.stopped();
    chunk.set_finish_reason(by_length ? "length" : "stop");
    set_usage(end, sampled_, chunk);
  }

 private:
  const ServedModel& model_;
  StopFilter stop_;
  const GrpcLogprobs logprobs_;
  tokenizer::IncrementalDecoder decoder_;
  std::string scratch_;
  int64_t sampled_ = 0;
};

std::string_view finish_word(chat::ReplyFinish finish) {
  if (finish == chat::ReplyFinish::kToolCalls) return "tool_calls";
  return finish == chat::ReplyFinish::kLength ? "length" : "stop";
}

class ChatOut final : public Writer {
 public:
  ChatOut(const ServedModel& model, ChatTurn::Options turn, uint64_t call_id_seed,
          GrpcLogprobs logprobs)
      : options_(std::move(turn)),
        turn_(model, options_),
        call_id_seed_(call_id_seed),
        logprobs_(logprobs) {
    add(turn_.begin(), opening_);
  }

  Wants push(const engine::SampledToken& token, v1::GenerateChunk& chunk) override {
    take_opening(chunk);
    add_token(token, logprobs_, chunk);
    add(turn_.push(token.token), chunk);
    return turn_.stopped() ? Wants::kNothing : Wants::kMore;
  }
  void end(const engine::StreamEnd& end, v1::GenerateChunk& chunk) override {
    take_opening(chunk);
    add(turn_.end(end), chunk);
    const std::string_view word = finish_word(turn_.reply().finish);
    chunk.set_finish_reason(word.data(), word.size());
    set_usage(end, turn_.sampled_tokens(), chunk);
    chunk.mutable_usage()->set_reasoning_tokens(turn_.reply().reasoning_tokens);
  }

 private:
  void take_opening(v1::GenerateChunk& chunk) {
    chunk.MergeFrom(opening_);
    opening_.Clear();
  }

  void add(const chat::ReplyDelta& delta, v1::GenerateChunk& chunk) {
    *chunk.mutable_reasoning() += delta.reasoning;
    *chunk.mutable_text() += delta.content;
    for (const chat::ToolCallDelta& call : delta.tool_calls) {
      const int count = chunk.tool_calls_size();
      const bool goes_on = !call.begins && count > 0 &&
                           chunk.tool_calls(count - 1).index() == static_cast<uint32_t>(call.index);
      v1::ToolCallDelta& into =
          goes_on ? *chunk.mutable_tool_calls(count - 1) : *chunk.add_tool_calls();
      into.set_index(static_cast<uint32_t>(call.index));
      if (call.begins) {
        into.set_id(random_id("call_", {.seed = call_id_seed_, .counter = calls_++}));
        into.set_name(call.name);
      }
      *into.mutable_arguments() += call.arguments;
    }
  }

  const ChatTurn::Options options_;
  ChatTurn turn_;
  const uint64_t call_id_seed_;
  const GrpcLogprobs logprobs_;
  uint64_t calls_ = 0;
  v1::GenerateChunk opening_;
};

}  // namespace

std::unique_ptr<Answer> grpc_tokens_answer(GrpcLogprobs logprobs) {
  return std::make_unique<GrpcAnswer>(std::make_unique<TokensOut>(logprobs));
}

std::unique_ptr<Answer> grpc_text_answer(const ServedModel& model, StopFilter stop,
                                         GrpcLogprobs logprobs) {
  return std::make_unique<GrpcAnswer>(std::make_unique<TextOut>(model, std::move(stop), logprobs));
}

std::unique_ptr<Answer> grpc_chat_answer(const ServedModel& model, ChatTurn::Options turn,
                                         uint64_t call_id_seed, GrpcLogprobs logprobs) {
  return std::make_unique<GrpcAnswer>(
      std::make_unique<ChatOut>(model, std::move(turn), call_id_seed, logprobs));
}

}  // namespace pelton::server
