#include "speculative/medusa.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pelton::speculative {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);

}  // namespace

Result<std::shared_ptr<Medusa>> Medusa::load(const Options& options,
                                             const checkpoint::Checkpoint& target,
                                             TargetHead target_head, base::ThreadPool& pool) {
  std::shared_ptr<Medusa> made(new Medusa(options, pool));
  TRY(made->allocate(target, std::move(target_head)));
  return made;
}

Result<void> Medusa::allocate(const checkpoint::Checkpoint& target, TargetHead target_head) {
  TRY_ASSIGN(kernels_, kernels::make_kernels(options_.kernels, pool_));
  TRY_ASSIGN(MedusaHeads heads,
             MedusaHeads::load(options_.heads, target, std::move(target_head), *kernels_));
  heads_ = std::make_unique<MedusaHeads>(std::move(heads));
  hidden_ = heads_->config().hidden_size;
  last_boundary_ = target.config().layer_count();
  sampler_ = std::make_unique<GuessSampler>(pool_, heads_->draft_vocab());
  const auto slots = static_cast<size_t>(options_.slot_count);
  const auto hidden = static_cast<size_t>(hidden_);
  slots_.resize(slots);
  slot_states_.resize(slots * hidden);
  step_.resize(static_cast<size_t>(options_.batch_tokens_max) * hidden);
  states_.resize(MedusaHeads::kRowsMax * hidden);
  return {};
}

Result<int64_t> Medusa::bytes_for(const Options& options, const families::ModelConfig& target,
                                  const BytesFacts& facts) {
  TRY_ASSIGN(const MedusaHeads::Bytes heads,
             MedusaHeads::bytes_for(options.heads, target, facts.is_reference));
  TRY_ASSIGN(const int vocab, MedusaHeads::draft_vocab_in(options.heads, target));
  const int64_t rows =
      int64_t{options.slot_count} + options.batch_tokens_max + MedusaHeads::kRowsMax;
  return heads.weights + heads.workspace + kFloatBytes * rows * target.hidden_size +
         GuessSampler::bytes_for(facts.threads, vocab);
}

int64_t Medusa::bytes() const {
  const size_t floats = slot_states_.capacity() + step_.capacity() + states_.capacity();
  return heads_->weight_bytes() + heads_->workspace_bytes() + sampler_->bytes() +
         static_cast<int64_t>(floats) * kFloatBytes;
}

void Medusa::begin(const NewSequence& sequence) {
  Slot& slot = slots_[static_cast<size_t>(sequence.slot)];
  slot.next = 0;
  if (sequence.sampling == nullptr) return;
  slot.sampling = guess_params(*sequence.sampling);
  if (heads_->has_own_ids()) {  // what is said of the target's ids does not fit them
    slot.sampling.logit_bias.clear();
    slot.sampling.allowed_tokens.clear();
  }
}

void Medusa::see(size_t, const float* x, int rows) {
  CHECK(rows <= options_.batch_tokens_max);
  std::copy_n(x, rows * hidden_, step_.data());
}

void Medusa::observe(std::span<const ComputedRows> computed) {
  for (const ComputedRows& rows : computed) {
    const int64_t last = rows.first_row + rows.count - 1;
    float* const state = state_of(rows.slot);
    std::copy_n(step_.data() + last * hidden_, hidden_, state);
    heads_->norm(state, 1);
    slots_[static_cast<size_t>(rows.slot)].next = rows.start + rows.count;
  }
}

// As many together as their guesses have room for rows of logits; of the newest token the target
// has no state yet, of the one before it is kept.
Result<void> Medusa::draft(std::span<DraftRequest> requests) {
  std::vector<Asked> asked;
  int heads = 0;
  const auto answer = [&] {
    if (!asked.empty()) guess(asked, heads);
    asked.clear();
    heads = 0;
  };
  for (DraftRequest& request : requests) {
    const Slot& slot = slots_[static_cast<size_t>(request.slot)];
    if (slot.next == 0 || slot.next + 1 != static_cast<int>(request.tokens.size())) continue;
    const int most = std::max(heads, std::min(request.tokens_max, heads_->count()));
    if (most * static_cast<int>(asked.size() + 1) > MedusaHeads::kRowsMax) answer();
    heads = std::max(heads, std::min(request.tokens_max, heads_->count()));
    std::copy_n(state_of(request.slot), hidden_,
                states_.data() + static_cast<int64_t>(asked.size()) * hidden_);
    asked.push_back({&request, &slot});
  }
  answer();
  return {};
}

// A sequence's guesses end where a head says no number, or names what is never sampled.
void Medusa::guess(std::span<const Asked> asked, int heads) {
  const auto count = static_cast<int>(asked.size());
  float* const logits = heads_->forward(states_.data(), count, heads);
  draws_.clear();
  for (int head = 0; head < heads; ++head) {
    for (const Asked& one : asked) {
      draws_.push_back({.params = &one.slot->sampling,
                        .position = static_cast<int>(one.request->tokens.size()) + head});
    }
  }
  const int vocab = heads_->draft_vocab();
  const int width = heads_->has_own_ids() ? vocab : std::min(vocab, options_.sampled_vocab);
  sampler_->draw(draws_, logits, vocab, width);
  for (int i = 0; i < count; ++i) {
    DraftRequest& request = *asked[static_cast<size_t>(i)].request;
    for (int head = 0; head < std::min(heads, request.tokens_max); ++head) {
      const GuessSampler::Row& draw = draws_[static_cast<size_t>(head * count + i)];
      if (!draw.usable) break;
      const TokenId guess = heads_->target_id(draw.guess);
      if (guess >= options_.sampled_vocab) break;
      request.guesses.push_back(guess);
    }
  }
}

}  // namespace pelton::speculative
