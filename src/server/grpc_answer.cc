#include "server/grpc_answer.h"

#include <utility>

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

class TokensOut final : public GrpcAnswer {
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

class TextOut final : public GrpcAnswer {
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

class ChatOut final : public GrpcAnswer {
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
      v1::ToolCallDelta& told =
          goes_on ? *chunk.mutable_tool_calls(count - 1) : *chunk.add_tool_calls();
      told.set_index(static_cast<uint32_t>(call.index));
      if (call.begins) {
        told.set_id(random_id("call_", {.seed = call_id_seed_, .counter = calls_++}));
        told.set_name(call.name);
      }
      *told.mutable_arguments() += call.arguments;
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

void add_prompt(const std::vector<engine::PromptToken>& scored, v1::GenerateChunk& chunk) {
  for (const engine::PromptToken& one : scored) {
    set_logprob(one.scored, *chunk.add_prompt_logprobs());
  }
}

std::unique_ptr<GrpcAnswer> grpc_tokens_answer(GrpcLogprobs logprobs) {
  return std::make_unique<TokensOut>(logprobs);
}

std::unique_ptr<GrpcAnswer> grpc_text_answer(const ServedModel& model, StopFilter stop,
                                             GrpcLogprobs logprobs) {
  return std::make_unique<TextOut>(model, std::move(stop), logprobs);
}

std::unique_ptr<GrpcAnswer> grpc_chat_answer(const ServedModel& model, ChatTurn::Options turn,
                                             uint64_t call_id_seed, GrpcLogprobs logprobs) {
  return std::make_unique<ChatOut>(model, std::move(turn), call_id_seed, logprobs);
}

}  // namespace pelton::server
