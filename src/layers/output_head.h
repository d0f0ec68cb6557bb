// From the last hidden states to logits. A packed model may hold its head twice: in 4 bits, which
// is read whole, and as shipped, of which only the rows that matter are read: those of the
// likeliest kLikeliest tokens and of all with a probability of kProbability or more. Logits of
// these are exact; the others keep what 4 bits give. A row's logits depend on that row alone. Owned
// by the model; its thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"
#include "kernels/logit_rows.h"
#include "layers/rank_part.h"

namespace pelton::layers {

class OutputHead {
 public:
  static constexpr int kLikeliest = 256;
  static constexpr double kProbability = 1e-5;
  // So many rows' exact logits are computed together: what several want is read once.
  static constexpr int kTogether = 32;

  OutputHead() = default;  // of no model yet
  // part: null, or what of it is this rank's beside the whole, which the leader looks at alone for
  // single tokens; outlives the head.
  static Result<OutputHead> load(const checkpoint::Checkpoint& checkpoint, const RankPart* part);

  // logits: float (rows, vocab); x: float (rows, hidden), normed.
  void forward(kernels::Kernels& kernels, float* logits, const float* x, int rows);

  // The same bits, computed by all ranks together, each its rows of the vocabulary, at the leader;
  // elsewhere `logits` may be null. Without ranks: forward. Which logits matter is seen over all of
  // the vocabulary: so the leader computes those exactly.
  void forward_shared(kernels::Kernels& kernels, float* logits, const float* x, int rows);

  // The logits of `tokens` alone, in their places of float (vocab); the others may be anything. x:
  // float (hidden), normed. Only their rows of the head are read where it lies row by row.
  void forward_some(kernels::Kernels& kernels, float* logits, const float* x,
                    std::span<const TokenId> tokens);

  // Read for so many rows: of the exact head for each as many as in the mean so far.
  int64_t weight_bytes(int rows) const;
  int64_t scratch_bytes() const;

 private:
  void find_logits(kernels::Kernels& kernels, float* logits, const float* x, int rows);
  // Computes exactly what the coarse logits show to matter.
  void correct(kernels::Kernels& kernels, float* logits, const float* x, int rows);
  // What follows the product: the scale, and the cap.
  float finished(float logit) const;
  void finish(float* logits, int rows) const;
  // Marks the logits of one row that matter.
  void mark(std::span<float> logits, uint64_t* marks);
  // The lowest logit that matters, as far as `coarse` ones show.
  float floor_of(std::span<float> coarse);

  kernels::Linear exact_;  // (vocab, hidden)
  kernels::Linear part_;   // this rank's rows of what is read whole: coarse_, or exact_
  const RankPart* ranks_ = nullptr;
  float scale_ = 1.0f;      // of each logit, ahead of the cap
  float softcap_ = 0;       // c: c tanh(z / c) of each logit z; 0: none
  kernels::Linear coarse_;  // the same in 4 bits; no data: there is none
  std::unique_ptr<kernels::LogitRows> scan_;
  std::vector<float> block_highest_;   // of the row's blocks
  std::vector<float> sorted_;          // the same, or a small row, in some order
  std::vector<kernels::Mass> masses_;  // of the row's blocks
  std::vector<uint64_t> marks_;        // (kTogether, vocab): the logits that matter
  int64_t rows_corrected_ = 0;
  int64_t logits_corrected_ = 0;
};

}  // namespace pelton::layers
