// One answer on its way: from a request to its events. Begun by any thread, read by one, cancelled
// by any; keeps its model.
#pragma once

#include <memory>

#include "base/result.h"
#include "c_api/model.h"
#include "c_api/pelton.h"
#include "chat/reply.h"
#include "engine/token_stream.h"
#include "tokenizer/incremental_decoder.h"

namespace pelton::c_api {

class Generation {
 public:
  static Result<std::unique_ptr<Generation>> start(std::shared_ptr<Model> model,
                                                   const pelton_request* request);

  // Once. Errors: the generation's; kInvalidArgument when it was read before.
  Result<pelton_result> read(pelton_callback callback, void* data);
  void cancel() { stream_.cancel(); }

 private:
  Generation(std::shared_ptr<Model> model, Prompt prompt, engine::TokenStream stream);

  // False: the reader wants no more.
  bool push(const engine::SampledToken& token);
  bool push_text(TokenId token);
  bool push_delta(const chat::ReplyDelta& delta);
  bool emit(pelton_event_kind kind, const std::string& text, int call = 0);
  bool end(const engine::StreamEnd& end, pelton_result& result);

  const std::shared_ptr<Model> model_;
  const Prompt prompt_;
  engine::TokenStream stream_;
  std::optional<chat::ReplyBuilder> builder_;  // of messages
  tokenizer::IncrementalDecoder decoder_;      // otherwise
  chat::ReplyDelta delta_;
  std::string text_;
  pelton_callback callback_ = nullptr;
  void* data_ = nullptr;
  // The token that is being reported, until an event has had it.
  TokenId token_ = -1;
  float logprob_ = 0.0f;
  bool was_read_ = false;
};

}  // namespace pelton::c_api

struct pelton_generation {
  std::unique_ptr<pelton::c_api::Generation> generation;
};
