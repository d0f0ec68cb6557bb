// Which rows of a model's matrices each of several ranks computes with, and so which bytes of its
// files it reads: its heads, rows and experts, and what every rank has whole (embedding, norms,
// router, biases). A follower computes its rows of the head; the leader has all of it, since single
// logits, whole prompts' and a drafter's it computes alone. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/weight_ranges.h"
#include "families/model_config.h"
#include "layers/expert_placement.h"
#include "parallel/share.h"

namespace pelton::layers {

inline constexpr int kRankBlock = 32;  // inner rows that stay together

struct RankShares {
  // Of whole heads, blocks and tiles, in proportion to `weights`, one for each rank. experts: who
  // has which, whole; empty: they are cut. Errors: kUnsupported, naming what of this model cannot
  // be shared out; kBadConfig where the table is not this model's.
  static Result<RankShares> make(const families::ModelConfig& config,
                                 const std::vector<int>& weights, const ExpertTable& experts);

  parallel::Share kv_heads;
  parallel::Share hidden;
  parallel::Share vocab;
  parallel::Share expert_blocks;  // of kRankBlock inner rows
  parallel::Share mlp_blocks;     // likewise
};

// Errors: as RankShares::make.
Result<checkpoint::WeightRanges> rank_weights(const checkpoint::Checkpoint& checkpoint, int rank,
                                              const std::vector<int>& weights,
                                              const ExpertTable& experts);

Error cannot_be_shared_out(const std::string& what);

}  // namespace pelton::layers
