// Draws guesses as the target will draw its tokens: with the same parameters, and the same noise at
// the same position. Where both distributions are close, the same number points at the same token
// (docs/decisions/0049). Owned by a proposer with weights; its thread, with the pool's workers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "base/token_id.h"
#include "request/generation_request.h"
#include "sampling/sampler.h"

namespace pelton::speculative {

// The target's, less what would need its history: a guess may be wrong.
request::SamplingParams guess_params(request::SamplingParams sampling);

class GuessSampler {
 public:
  // Rows of up to so many logits. `pool` outlives it.
  GuessSampler(base::ThreadPool& pool, int vocab_size);
  static int64_t bytes_for(int threads, int vocab_size);

  struct Row {
    const request::SamplingParams* params = nullptr;  // of guess_params
    int position = 0;                                 // of the guess, in its sequence
    bool usable = true;                               // the answer: the row held numbers
    TokenId guess = 0;                                // the answer: an index into the row
  };
  // logits: float (rows, stride), of which the first `width` of each row may be drawn;
  // overwritten.
  void draw(std::span<Row> rows, float* logits, int64_t stride, int width);

  int64_t bytes() const;

 private:
  base::ThreadPool& pool_;
  std::vector<sampling::Sampler> samplers_;  // one a worker
};

}  // namespace pelton::speculative
