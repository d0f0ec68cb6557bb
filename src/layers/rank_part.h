// What one of several ranks computes of a model (docs/decisions/0111): a run of output rows of each
// matrix, and of attention a run of key/value heads. Every output number is computed by one rank,
// over the whole input, in the order in which one process computes it; ranks bring finished numbers
// together and add nothing, so the bits are one process's. Null where there is one process. Owned
// by whoever owns the model, whose layers point to it; executor thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"
#include "layers/dealt_experts.h"
#include "layers/weights.h"
#include "parallel/exchange.h"
#include "parallel/share.h"

namespace pelton::layers {

class RankPart {
 public:
  // Shares in proportion to `weights`, one for each rank: equal ones give equal shares, as far as
  // whole heads, blocks of 32 and tiles of 16 allow. experts: who has which, whole; empty: every
  // rank has its share of each. `exchange` outlives it. Errors: kUnsupported, naming what of this
  // model cannot be shared out; kBadConfig where the table is not this model's.
  static Result<RankPart> make(const checkpoint::Checkpoint& checkpoint,
                               parallel::Exchange& exchange, const std::vector<int>& weights,
                               const ExpertTable& experts);
  RankPart(RankPart&&) = default;
  RankPart& operator=(RankPart&&) = default;

  int rank() const { return exchange_->rank(); }
  bool is_leader() const { return rank() == 0; }
  parallel::Exchange& exchange() const { return *exchange_; }

  const parallel::Share& kv_heads() const { return kv_heads_; }
  const parallel::Share& hidden() const { return hidden_; }
  const parallel::Share& vocab() const { return vocab_; }
  // Of experts, and of dense MLPs: blocks of 32 of their inner width.
  const parallel::Share& expert_blocks() const { return expert_blocks_; }
  const parallel::Share& mlp_blocks() const { return mlp_blocks_; }
  // Null: every rank has a part of every expert, as expert_blocks says.
  const DealtExperts* dealt_experts(int layer) const {
    return dealt_.empty() ? nullptr : &dealt_[static_cast<size_t>(layer)];
  }

  ChoiceShare& choice_share() const { return choice_share_; }
  // How often tokens chose each expert, where they are dealt out. Any thread.
  ExpertLoads chosen_experts() const;

  // Room for steps of so many tokens and rows of logits.
  void reserve(const families::ModelConfig& config, int tokens, int logit_rows);
  float* room() const { return room_.data(); }
  int64_t room_bytes() const { return static_cast<int64_t>(room_.capacity() * sizeof(float)); }

  // x += rows, of this rank's columns of x: float (tokens, hidden), by `add(out)`, which adds to
  // out: float (tokens, own columns); then everybody's columns.
  template <typename Add>
  void add_columns(float* x, int tokens, const Add& add) const {
    take_columns(x, tokens);
    add(room_.data());
    give_columns(x, tokens);
  }

 private:
  RankPart() = default;
  void take_columns(const float* x, int tokens) const;
  void give_columns(float* x, int tokens) const;

  parallel::Exchange* exchange_ = nullptr;
  parallel::Share kv_heads_;
  parallel::Share hidden_;
  parallel::Share vocab_;
  parallel::Share expert_blocks_;
  parallel::Share mlp_blocks_;
  std::vector<DealtExperts> dealt_;   // of each layer; or none
  mutable std::vector<float> room_;   // of one block at a time: this rank's columns, side by side
  mutable ChoiceShare choice_share_;  // likewise
};

// Between the products of experts (kernels::MoeShape::exchange).
class ExpertExchange final : public kernels::ColumnExchange {
 public:
  explicit ExpertExchange(const RankPart& part) : part_(part) {}
  int first() const override { return part_.expert_blocks().begin(part_.rank()); }
  int count() const override { return part_.expert_blocks().count(part_.rank()); }
  void gather(const Array* arrays, int array_count, int64_t rows) override;

 private:
  const RankPart& part_;
};

// Rows [first, first + count) of a matrix, where it lies. Errors: kUnsupported, naming the format's
// kind; `name` is for messages.
Result<kernels::Matrix> rows_of(const kernels::Matrix& matrix, int first, int count,
                                const std::string& name);
Result<kernels::Linear> rows_of(const kernels::Linear& linear, int first, int count,
                                const std::string& name);
// Of experts: this rank's blocks of gate and up, and its rows of down. Their biases, which lie
// expert by expert, and where experts lie that have a tensor each are kept in `keep`.
Result<kernels::ExpertWeights> part_of(const kernels::ExpertWeights& whole, const RankPart& part,
                                       const std::string& name, FloatVectors& keep);

}  // namespace pelton::layers
