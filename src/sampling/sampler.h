// One row of logits in, one token out. The order of things is request::SamplingParams'. The draw is
// a pure function of (logits, parameters, seed, position): equal under batching, preemption,
// speculation, and on every processor, since weights are whole numbers (kernels/logit_rows.h): the
// tokens that the cuts leave stand in a row in order of id, each as wide as its weight, and the
// random number points at a place in that row. A Sampler is scratch memory; one a worker.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/token_id.h"
#include "kernels/logit_rows.h"
#include "request/generation_request.h"
#include "sampling/candidates.h"
#include "sampling/distribution_cuts.h"
#include "sampling/token_history.h"

namespace pelton::sampling {

struct SampledChoice {
  // False: the row holds a NaN or an infinity, or nothing that may be chosen; there is no token.
  bool usable = true;
  TokenId token = 0;
  float logprob = 0.0f;  // of the row as it came, natural logarithm
  // Best first, params.logprobs of them; then the others of params.logprob_tokens.
  std::vector<std::pair<TokenId, float>> top;
  float surprise = -1.0f;  // of params.mirostat: in bits, among the tokens it left
};

struct ScoredChoice {
  SampledChoice choice;
  int rank = 0;  // 1: nothing is likelier; of equals the lower id comes first
};

// How a token is drawn from a row, wherever the row lies.
struct DrawInput {
  const request::SamplingParams& params;
  const TokenHistory* history = nullptr;  // null: nothing looks back
  std::span<const TokenId> banned;        // not to be chosen
  // What else may not: tokens whose bit (number t % 64 of word t / 64) is 0. Empty: all may.
  std::span<const uint64_t> allowed;
  int position = 0;             // of the token to be sampled, in its sequence
  float mirostat_bound = 0.0f;  // of params.mirostat, as the tokens before have moved it
};

class Sampler {
 public:
  Sampler() : Sampler(kernels::KernelChoice::kAuto) {}
  // All choices that the processor has give the same tokens.
  explicit Sampler(kernels::KernelChoice choice);

  // Allocates what rows of up to `vocab` logits need: bytes_for(vocab).
  void reserve(int vocab);
  int64_t bytes() const;
  static int64_t bytes_for(int vocab);

  // The logits are overwritten.
  SampledChoice sample(std::span<float> logits, const DrawInput& input);

  // How likely `token` is in a row as it came, with the `top` likeliest: what sample() would say of
  // it, had it been chosen.
  ScoredChoice score(std::span<float> logits, TokenId token, int top);

 private:
  TokenId draw(const Row& row, float highest, const DrawInput& input, uint64_t random,
               float& surprise);
  TokenId draw_by_distribution(const Row& row, float highest, const request::SamplingParams& params,
                               uint64_t random);
  TokenId draw_by_mirostat(const Row& row, float highest, const DrawInput& input, uint64_t random,
                           float& surprise);
  TokenId draw_from_ranked(uint64_t random);
  void rank_candidates();  // into ranked_: those that weigh anything
  TokenId draw_from_candidates(const request::SamplingParams& params, uint64_t random);
  TokenId draw_from_mass(const Row& row, kernels::LogitScale scale,
                         const request::SamplingParams& params, uint64_t random);
  TokenId draw_from_all(const Row& row, kernels::LogitScale scale, uint64_t random);
  TokenId draw_from_front(const Row& row, kernels::LogitScale scale, const Front& front,
                          uint64_t random);
  TokenId draw_from_blocks(const Row& row, kernels::LogitScale scale, size_t block,
                           kernels::Mass target, float floor, TokenId last);
  void collect_best(const Row& row, size_t count);
  TokenId first_of(const Row& row, float value) const;

  // The row as it came: its n best, and ln of the sum of e^logit.
  double report_best(const Row& raw, float highest, int wanted, SampledChoice& choice);

  Row row_of(std::span<const float> logits) const {
    return {logits, {block_highest_.data(), kernels::logit_blocks(logits.size())}};
  }

  std::unique_ptr<const kernels::LogitRows> rows_;
  Candidates candidates_;
  std::vector<float> raw_;
  std::vector<float> block_highest_;
  std::vector<kernels::Mass> block_mass_;
  std::vector<Weighted> ranked_;  // of rows with cuts by their distribution
};

}  // namespace pelton::sampling
