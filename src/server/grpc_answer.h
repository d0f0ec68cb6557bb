// What becomes of one gRPC Generate's tokens: pieces of the stream. Three kinds of prompts, three
// kinds of pieces: tokens, text, or a chat's turn. Owned by its call; the call's thread.
#pragma once

#include <memory>
#include <string>

#include <pelton/v1/inference.pb.h>

#include "engine/token_stream.h"
#include "server/answer.h"
#include "server/chat_turn.h"
#include "server/served_model.h"

namespace pelton::server {

class GrpcAnswer {
 public:
  virtual ~GrpcAnswer() = default;

  // Adds to `chunk` what the token is and shows. kNothing: a stop string ended it.
  virtual Answer::Wants push(const engine::SampledToken& token, v1::GenerateChunk& chunk) = 0;
  // The rest, finish_reason and usage.
  virtual void end(const engine::StreamEnd& end, v1::GenerateChunk& chunk) = 0;
};

// How likely the prompt's tokens were, with the first piece of any answer.
void add_prompt(const std::vector<engine::PromptToken>& scored, v1::GenerateChunk& chunk);

enum class GrpcLogprobs { kNo, kYes };

std::unique_ptr<GrpcAnswer> grpc_tokens_answer(GrpcLogprobs logprobs);
std::unique_ptr<GrpcAnswer> grpc_text_answer(const ServedModel& model, StopFilter stop,
                                             GrpcLogprobs logprobs);
std::unique_ptr<GrpcAnswer> grpc_chat_answer(const ServedModel& model, ChatTurn::Options turn,
                                             uint64_t call_id_seed, GrpcLogprobs logprobs);

}  // namespace pelton::server
