// One row of logits in, one token out. The order of things is request::SamplingParams'. The draw is
// a pure function of (logits, parameters, seed, position): equal under batching, preemption,
// speculation. A Sampler is scratch memory; one a worker.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "base/token_id.h"
#include "request/generation_request.h"
#include "sampling/token_history.h"

namespace pelton::sampling {

struct SampledChoice {
  bool usable = true;  // false: the row holds a NaN or an infinity, and there is no token
  TokenId token = 0;
  float logprob = 0.0f;                        // of the row as it came, natural logarithm
  std::vector<std::pair<TokenId, float>> top;  // best first, params.logprobs of them
};

struct SampleInput {
  std::span<float> logits;  // overwritten
  const request::SamplingParams& params;
  const TokenHistory* history = nullptr;  // null: no penalties
  std::span<const TokenId> banned;        // not to be chosen
  int position = 0;                       // of the token to be sampled, in its sequence
};

class Sampler {
 public:
  // Allocates what rows of up to `vocab` logits need: kBytesPerLogit each.
  static constexpr int kBytesPerLogit = 16;
  void reserve(int vocab);
  int64_t bytes() const;

  SampledChoice sample(const SampleInput& input);

 private:
  struct Candidate {
    float logit;
    TokenId token;
  };

  TokenId draw(std::span<const float> logits, const request::SamplingParams& params, double unit);
  TokenId draw_from_all(std::span<const float> logits, float highest, float temperature,
                        double unit);
  TokenId draw_from_best(std::span<const float> logits, float highest,
                         const request::SamplingParams& params, double unit);
  void report(const SampleInput& input, SampledChoice& choice);

  std::vector<float> weights_;
  std::vector<Candidate> candidates_;
  std::vector<float> raw_;
};

}  // namespace pelton::sampling
