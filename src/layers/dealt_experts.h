// Experts of one layer that several ranks have dealt out among them, each whole on one
// (--enable-expert-parallel, docs/decisions/0118). A rank computes what its experts give for each
// token that chose them, over whole rows; then every rank has all of these rows, and adds them in
// the order in which one process does. Null where every rank has a part of every expert. Made with
// the RankPart that owns it; executor thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "families/model_config.h"
#include "kernels/kernels.h"
#include "layers/weights.h"
#include "parallel/exchange.h"

namespace pelton::layers {

// Of each layer, of each of its experts, the rank that has it; of a layer without experts none.
using ExpertTable = std::vector<std::vector<int>>;

// Neighbours together: of 32 experts and 3 ranks, 0 to 10, 11 to 21 and 22 to 31. Errors:
// kUnsupported where there are no experts, or fewer than ranks.
Result<ExpertTable> deal_experts(const families::ModelConfig& config, int ranks);
// A table that somebody else made is one of this model and so many ranks. Error: kBadConfig.
Result<void> check_experts(const ExpertTable& table, const families::ModelConfig& config,
                           int ranks);

class DealtExperts {
 public:
  // ranks: of each expert, its rank.
  DealtExperts(std::vector<int> ranks, int own_rank);

  int rank_of(int expert) const { return ranks_[static_cast<size_t>(expert)]; }
  const std::vector<int>& own() const { return own_; }  // this rank's, rising
  // Of each expert, its place in own(), or -1.
  const std::vector<int32_t>& places() const { return places_; }

 private:
  std::vector<int> ranks_;
  std::vector<int> own_;
  std::vector<int32_t> places_;
};

// What experts give for the tokens that chose them (kernels::MoeShape::dealt).
class ExpertRows final : public kernels::RowExchange {
 public:
  ExpertRows(const DealtExperts& dealt, parallel::Exchange& exchange)
      : dealt_(dealt), exchange_(exchange) {}
  const int32_t* places() const override { return dealt_.places().data(); }
  void gather(float* rows, int width, const kernels::ExpertChoice* choices, int64_t count) override;

 private:
  const DealtExperts& dealt_;
  parallel::Exchange& exchange_;
};

// This rank's experts, where they lie; their biases, and where they are, are kept in `keep`. Error:
// kUnsupported, naming the format's kind.
Result<kernels::ExpertWeights> own_experts(const kernels::ExpertWeights& whole,
                                           const DealtExperts& dealt, const std::string& name,
                                           FloatVectors& keep);

}  // namespace pelton::layers
