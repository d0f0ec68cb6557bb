// The answer to POST /inference/v1/generate: tokens as they were sampled, whole or streamed. Owned
// by its Generation.
#pragma once

#include <string>
#include <vector>

#include "api/generate_response.h"
#include "server/answer.h"

namespace pelton::server {

class TokensAnswer final : public Answer {
 public:
  struct Options {
    std::string id;
    int choice_count = 1;
    bool logprobs = false;
    bool include_usage = false;
  };

  explicit TokensAnswer(Options options);

  Wants push(size_t choice, const engine::SampledToken& token) override;
  void end(size_t choice, const engine::StreamEnd& end) override;
  void take_events(std::string& out) override;
  void take_last_events(std::string& out) override;
  std::string whole_body() override;

 private:
  const Options options_;
  std::vector<api::GeneratedChoice> choices_;  // tokens not handed out yet
  std::vector<bool> finish_sent_;
  api::Usage usage_;
};

}  // namespace pelton::server
