// Proposes what an EAGLE-3 head guesses from the target's own hidden states (Li et al. 2025), drawn
// with the target's parameters and noise. Much cheaper than a draft model: one layer.
//
// It sees each step of the target (Proposer::see, observe) and keeps keys and values of the
// sequences in stores, one for each slot of the executor, as far as tokens_max. A sequence that
// begins takes the store that was left longest ago, and copies into it the longest beginning that
// any store holds of what it may share: so what the target does not compute again (a hit in the
// prefix cache, a sequence that was swapped out) the head mostly has, too. What it lacks is a hole:
// it goes on behind it and looks back beyond it. What it wrote for guesses of its own is
// overwritten by what the target computed.
//
// Example: a store holds a b c d e; a sequence a b c x begins. Keys and values of positions 0, 1
// and 2 are copied: position p's are of the target's feature of p and the token behind it. For
// position 2 that is d instead of x: its feature is right, its token is not, and if the target does
// not compute position 2 again one place stays a little wrong. If the target goes on at position 5,
// positions 3 and 4 are a hole: position 5 lies at place 3, rotated as position 5.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "models/kv_storage.h"
#include "speculative/eagle3_head.h"
#include "speculative/guess_sampler.h"
#include "speculative/proposer.h"

namespace pelton::speculative {

class Eagle3 final : public Proposer {
 public:
  struct Options {
    std::string head;  // a folder
    int slot_count = 0;
    int sampled_vocab = 0;       // ids from here on are never sampled
    int tokens_max = 4096;       // of a sequence that are looked back at
    int batch_tokens_max = 512;  // rows of a step of the target
    int guesses_max = 64;        // of one draft
    kernels::KernelChoice kernels = kernels::KernelChoice::kAuto;
  };

  // `target` and `pool` outlive it. Errors: Eagle3Head's.
  static Result<std::shared_ptr<Eagle3>> load(const Options& options,
                                              const checkpoint::Checkpoint& target,
                                              base::ThreadPool& pool);

  // What it allocates, its weights' file included. Errors: the head's.
  struct BytesFacts {
    bool is_reference = false;
    tensor::DType kv_dtype = tensor::DType::kF16;
    int threads = 1;
  };
  static Result<int64_t> bytes_for(const Options& options, const families::ModelConfig& target,
                                   const BytesFacts& facts);

  std::string_view name() const override { return "eagle3"; }
  void begin(const NewSequence& sequence) override;
  void append(int, std::span<const TokenId>, size_t) override {}
  Result<void> draft(std::span<DraftRequest> requests) override;
  std::span<const int> taps() const override { return head_->config().taps; }
  void see(size_t tap, const float* x, int rows) override;
  void observe(std::span<const ComputedRows> rows) override;
  std::string warning() const override;
  int64_t bytes() const override;

 private:
  // Keys and values of a sequence, of the features of its positions [0, beginning) and
  // [first, next): position p's at place p, and behind the hole at p - first + beginning. No hole:
  // beginning and first are 0.
  struct Store {
    const int32_t* blocks = nullptr;  // by place / kBlockTokens
    int beginning = 0;
    int first = 0;
    int next = 0;
    kv::BlockHash origin = {};         // of its sequence
    std::vector<TokenId> tokens = {};  // of the positions from 0 on up to the first that it lacks
    int64_t left = 0;                  // when, in beginnings of sequences; kHeld: not yet
    int places() const { return next - first + beginning; }
  };
  static constexpr int64_t kHeld = -1;
  struct Slot {
    request::SamplingParams sampling;
    Store* store = nullptr;    // null: nothing has begun here
    float* feature = nullptr;  // (hidden): of position store->next - 1
    bool has_feature = false;  // else what was taken over is not gone on with yet
  };
  // A row of the target that is to be kept.
  struct Kept {
    Slot* slot = nullptr;
    int row = 0;       // of the step
    int position = 0;  // of the row
    TokenId next = 0;  // the token behind it
  };
  // A request that is being answered.
  struct Chain {
    DraftRequest* request = nullptr;
    Slot* slot = nullptr;
  };

  Eagle3(const Options& options, base::ThreadPool& pool) : options_(options), pool_(pool) {}

  Result<void> allocate(const checkpoint::Checkpoint& target);
  void change_store(Slot& slot);
  void take_beginning(Store& store, const NewSequence& sequence);
  void make_room(Store& store, const ComputedRows& rows) const;
  void keep();
  bool can_draft(const DraftRequest& request) const;
  void draft_chains(std::span<Chain> chains);
  void guess(std::span<Chain> chains, float* logits);

  const Options options_;
  base::ThreadPool& pool_;
  std::unique_ptr<kernels::Kernels> kernels_;
  std::unique_ptr<Eagle3Head> head_;
  std::unique_ptr<models::KvStorage> kv_;
  std::unique_ptr<GuessSampler> sampler_;
  std::vector<int32_t> blocks_;  // of all stores, one after the other
  std::vector<Store> stores_;
  std::vector<Slot> slots_;
  int64_t begun_ = 0;                 // sequences
  std::vector<float> slot_features_;  // (slots, hidden)
  std::vector<float> taps_;           // (batch_tokens_max, 3 * hidden): of the step at hand
  std::vector<float> features_;       // (kRowsMax, hidden): of rows that are kept, or of chains

  std::vector<Kept> kept_;  // scratch
  std::vector<Eagle3Head::Row> rows_;
  std::vector<GuessSampler::Row> draws_;
};

}  // namespace pelton::speculative
