// The answer to POST /inference/v1/generate: tokens as they were sampled, whole or streamed. Owned
// by its Generation.
#pragma once

#include <string>
#include <vector>

#include "api/generate_response.h"
#include "server/answer.h"
#include "tokenizer/tokenizer.h"

namespace pelton::server {

class TokensAnswer final : public Answer {
 public:
  struct Options {
    std::string id;
    int choice_count = 1;
    bool logprobs = false;
    // Reported in a whole answer: what its words are called there, the model's tokenizer knows.
    const tokenizer::Tokenizer* prompt_logprobs = nullptr;  // null: not reported
    bool include_usage = false;
  };

  explicit TokensAnswer(Options options);

  void prompt(size_t choice, std::vector<engine::PromptToken> scored) override;
  Wants push(size_t choice, const engine::SampledToken& token) override;
  void end(size_t choice, const engine::StreamEnd& end) override;
  void take_events(std::string& out) override;
  void take_last_events(std::string& out) override;
  std::string whole_body() override;

 private:
  const Options options_;
  std::vector<api::GeneratedChoice> choices_;  // tokens not handed out yet
  std::vector<bool> finish_sent_;
  std::vector<api::PromptTokenLogprobs> prompt_logprobs_;
  api::Usage usage_;
};

}  // namespace pelton::server
