// Proposes what a smaller model with the same tokens would say (Leviathan et al. 2022; Chen et al.
// 2023). It draws with the target's parameters and the target's noise of each position, so that
// both mostly draw the same token where they think alike, at any temperature.
//
// It keeps keys and values of its own for every slot, as far as tokens_max, and computes what it
// lacks when it is asked: what a sequence got since the last time, and at first its prompt, a chunk
// a step. What is kept for a slot is compared with the sequence's tokens, so that wrong guesses,
// and a sequence that takes the slot of another one, need no further care; but one that may not
// share with the other (NewSequence::origin) finds nothing of it, or its answer would come
// sooner where another tenant has asked the same.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "cost_model/footprint.h"
#include "kernels/kernels.h"
#include "models/kv_storage.h"
#include "models/model.h"
#include "speculative/guess_sampler.h"
#include "speculative/proposer.h"

namespace pelton::speculative {

class DraftModel final : public Proposer {
 public:
  struct Options {
    std::string model;  // a folder
    int slot_count = 0;
    int vocab_size = 0;     // the target's
    int sampled_vocab = 0;  // ids from here on are never sampled
    int tokens_max = 4096;  // of a sequence; a longer one has no guesses
    kernels::KernelChoice kernels = kernels::KernelChoice::kAuto;
  };

  // `pool` outlives it. Errors: the checkpoint's; kInvalidArgument for another vocabulary.
  static Result<std::shared_ptr<DraftModel>> load(const Options& options, base::ThreadPool& pool);

  // How many tokens of a sequence the model in that folder was made for. Errors: the checkpoint's.
  static Result<int> context_of(const std::string& folder);

  // What it allocates, its weights' files included. Errors: the checkpoint's.
  static Result<int64_t> bytes_for(const Options& options, cost_model::KernelKind kernels,
                                   tensor::DType kv_dtype, int threads);

  std::string_view name() const override { return "draft_model"; }
  void begin(const NewSequence& sequence) override;
  void append(int, std::span<const TokenId>, size_t) override {}
  Result<void> draft(std::span<DraftRequest> requests) override;
  int64_t catch_up_ns() const override { return catch_up_ns_; }
  int64_t bytes() const override;

 private:
  // Tokens of a step, so that a long prompt does not hold up everybody.
  static constexpr int kBatchTokens = 512;

  struct Slot {
    request::SamplingParams sampling;
    kv::BlockHash origin;         // of its sequence
    std::vector<TokenId> tokens;  // whose keys and values are kept, by position
    kv::PerGroup<const int32_t*> tables;
  };
  // A request that is being answered.
  struct Chain {
    DraftRequest* request;
    Slot* slot;
  };

  DraftModel(const Options& options, base::ThreadPool& pool, checkpoint::Checkpoint checkpoint);

  Result<void> allocate();
  std::vector<Chain> catch_up(std::span<DraftRequest> requests);
  void guess(std::span<const Chain> chains, float* logits);

  const Options options_;
  base::ThreadPool& pool_;
  const checkpoint::Checkpoint checkpoint_;
  std::unique_ptr<kernels::Kernels> kernels_;
  std::unique_ptr<models::Model> model_;
  std::unique_ptr<models::KvStorage> kv_;
  std::vector<int32_t> blocks_;  // of all slots, one after the other; the same in every group
  std::vector<Slot> slots_;
  GuessSampler sampler_;
  int64_t catch_up_ns_ = 0;              // of the last draft
  int64_t missed_tokens_ = 0;            // of its first pass
  std::vector<GuessSampler::Row> rows_;  // scratch
  models::ForwardInput input_;           // scratch
};

}  // namespace pelton::speculative
