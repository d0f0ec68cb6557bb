// What becomes of one gRPC Generate's tokens: messages of the stream, as frames
// (rpc/grpc_frame.h). Three kinds of prompts, three kinds of messages: tokens, text, or a
// chat's turn. Owned by its Generation, on the listener's loop.
#pragma once

#include <memory>

#include "engine/token_stream.h"
#include "server/answer.h"
#include "server/chat_turn.h"
#include "server/served_model.h"

namespace pelton::server {

enum class GrpcLogprobs { kNo, kYes };

std::unique_ptr<Answer> grpc_tokens_answer(GrpcLogprobs logprobs);
std::unique_ptr<Answer> grpc_text_answer(const ServedModel& model, StopFilter stop,
                                         GrpcLogprobs logprobs);
std::unique_ptr<Answer> grpc_chat_answer(const ServedModel& model, ChatTurn::Options turn,
                                         uint64_t call_id_seed, GrpcLogprobs logprobs);

}  // namespace pelton::server
