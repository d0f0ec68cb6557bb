// Proposes what Medusa heads (Cai et al. 2024) guess from the target's own state, drawn with the
// target's parameters and noise. The cheapest of those with weights: no keys, no values, no pass
// over what came before; all guesses come from one state, so that the later ones do not know the
// earlier ones.
//
// It sees what the target's last layer leaves (Proposer::see, observe) and keeps of each slot the
// state of the last row that counted.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "speculative/guess_sampler.h"
#include "speculative/medusa_heads.h"
#include "speculative/proposer.h"

namespace pelton::speculative {

class Medusa final : public Proposer {
 public:
  struct Options {
    std::string heads;  // a folder
    int slot_count = 0;
    int sampled_vocab = 0;       // ids from here on are never sampled
    int batch_tokens_max = 512;  // rows of a step of the target
    kernels::KernelChoice kernels = kernels::KernelChoice::kAuto;
  };

  // `target` and `pool` outlive it, and what `target_head` computes with. Errors: MedusaHeads'.
  static Result<std::shared_ptr<Medusa>> load(const Options& options,
                                              const checkpoint::Checkpoint& target,
                                              TargetHead target_head, base::ThreadPool& pool);

  // What it allocates, its weights' file included. Errors: the heads'.
  struct BytesFacts {
    bool is_reference = false;
    int threads = 1;
  };
  static Result<int64_t> bytes_for(const Options& options, const families::ModelConfig& target,
                                   const BytesFacts& facts);

  std::string_view name() const override { return "medusa"; }
  void begin(const NewSequence& sequence) override;
  void append(int, std::span<const TokenId>, size_t) override {}
  Result<void> draft(std::span<DraftRequest> requests) override;
  std::span<const int> taps() const override { return {&last_boundary_, 1}; }
  void see(size_t tap, const float* x, int rows) override;
  void observe(std::span<const ComputedRows> rows) override;
  int64_t bytes() const override;

 private:
  struct Slot {
    request::SamplingParams sampling;
    int next = 0;  // the position behind the state's; 0: there is none
  };
  // A request that is being answered.
  struct Asked {
    DraftRequest* request = nullptr;
    const Slot* slot = nullptr;
  };

  Medusa(const Options& options, base::ThreadPool& pool) : options_(options), pool_(pool) {}

  Result<void> allocate(const checkpoint::Checkpoint& target, TargetHead target_head);
  float* state_of(int slot) { return slot_states_.data() + slot * hidden_; }
  void guess(std::span<const Asked> asked, int heads);

  const Options options_;
  base::ThreadPool& pool_;
  int64_t hidden_ = 0;
  int last_boundary_ = 0;  // of the target: behind all its layers
  std::unique_ptr<kernels::Kernels> kernels_;
  std::unique_ptr<MedusaHeads> heads_;
  std::unique_ptr<GuessSampler> sampler_;
  std::vector<Slot> slots_;
  std::vector<float> slot_states_;  // (slots, hidden), normed
  std::vector<float> step_;         // (batch_tokens_max, hidden): of the step at hand
  std::vector<float> states_;       // (MedusaHeads::kRowsMax, hidden): of those asked together
  std::vector<GuessSampler::Row> draws_;  // scratch
};

}  // namespace pelton::speculative
