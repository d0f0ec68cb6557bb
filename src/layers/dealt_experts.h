// Experts of a model that several ranks have dealt out among them, each whole on one or on some
// (--enable-expert-parallel, docs/decisions/0118): which of them one rank has, who computes which
// choice of a step, and the rows that travel. A rank computes what its experts give for each token
// that chose them, over whole rows; then every rank has all of these rows, and adds them in the
// order in which one process does. Owned by the rank's RankPart; executor thread, what was chosen
// any.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/kernels.h"
#include "layers/expert_placement.h"
#include "layers/weights.h"
#include "parallel/exchange.h"

namespace pelton::layers {

// Of one layer.
class DealtExperts {
 public:
  // owners: of each expert the ranks that have it, one at least, rising.
  DealtExperts(std::vector<std::vector<int>> owners, int own_rank);

  int count() const { return static_cast<int>(owners_.size()); }
  const std::vector<int>& owners(int expert) const { return owners_[static_cast<size_t>(expert)]; }
  const std::vector<int>& own() const { return own_; }  // this rank's, rising
  int own_rank() const { return own_rank_; }
  // In own(); -1: this rank does not have it.
  int32_t place(int expert) const { return places_[static_cast<size_t>(expert)]; }

  // How often tokens chose each so far.
  std::vector<int64_t> chosen() const;
  void count_choices(int expert, int64_t count) const {
    std::atomic<int64_t>& sum = chosen_[static_cast<size_t>(expert)];
    sum.store(sum.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
  }

 private:
  std::vector<std::vector<int>> owners_;
  int own_rank_;
  std::vector<int> own_;
  std::vector<int32_t> places_;
  mutable std::vector<std::atomic<int64_t>> chosen_;
};

// Who computes which choice of a step: the same on every rank. Of an expert that several have, each
// run of some choices goes to the one that has least to do; its weights are read once for each.
// Room for the largest step; one layer at a time.
class ChoiceShare {
 public:
  void reserve(int tokens, int experts_per_token, int experts, int ranks);

  void share_out(const DealtExperts& dealt, int ranks, const kernels::ExpertChoice* choices,
                 int64_t count);

  int rank_of(int64_t choice) const { return ranks_of_[static_cast<size_t>(choice)]; }
  const int32_t* places() const { return places_.data(); }  // kernels::RowExchange

 private:
  struct OfExpert {
    int64_t choices = 0;
    int64_t seen = 0;
    int rank = 0;  // whose the run at hand is
  };

  std::vector<int32_t> ranks_of_;  // (choices)
  std::vector<int32_t> places_;    // (choices)
  std::vector<OfExpert> experts_;
  std::vector<int64_t> runs_;  // of each rank, so far
};

// What experts give for the tokens that chose them (kernels::MoeShape::dealt).
class ExpertRows final : public kernels::RowExchange {
 public:
  ExpertRows(const DealtExperts& dealt, ChoiceShare& share, parallel::Exchange& exchange)
      : dealt_(dealt), share_(share), exchange_(exchange) {}
  const int32_t* places(const kernels::ExpertChoice* choices, int64_t count) override;
  void gather(float* rows, int width, int64_t count) override;

 private:
  const DealtExperts& dealt_;
  ChoiceShare& share_;
  parallel::Exchange& exchange_;
};

// This rank's experts, where they lie; their biases, and where they are, are kept in `keep`. Error:
// kUnsupported, naming the format's kind.
Result<kernels::ExpertWeights> own_experts(const kernels::ExpertWeights& whole,
                                           const DealtExperts& dealt, const std::string& name,
                                           FloatVectors& keep);

}  // namespace pelton::layers
