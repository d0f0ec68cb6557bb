// Who learns, beside the bytes of an answer, of the tokens that they are made of: so that somebody
// else could go on with it. Of one request, on its exchange's net thread. What is noted belongs to
// the exchange's next write().
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "engine/token_stream.h"

namespace pelton::server {

class AnswerObserver {
 public:
  virtual ~AnswerObserver() = default;

  // The tokens of a prompt, by its number, that another server might write otherwise. Before the
  // first token.
  virtual void note_prompt(size_t prompt, const std::vector<TokenId>& tokens) = 0;
  // The digest of the LoRA adapter that it is computed with. Before the first token.
  virtual void note_adapter(std::string_view digest) = 0;
  // What was found of a choice's prompt. Before its first token.
  virtual void note_found(size_t choice, const engine::PromptFound& found) = 0;
  virtual void note_token(size_t choice, const engine::SampledToken& token) = 0;
  virtual void note_end(size_t choice, const engine::StreamEnd& end) = 0;
  // The next write() says the last of a stream.
  virtual void note_last() = 0;
  // No write() follows for now.
  virtual void flush() = 0;
  // This server cannot go on. `event`: the error as its client's protocol writes it.
  virtual void note_failure(const api::ApiError& error, std::string_view event) = 0;
};

}  // namespace pelton::server
