#include "speculative/draft_model.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/clock.h"

namespace pelton::speculative {
namespace {

constexpr int kBlockTokens = 16;  // what fast kernels read at a time

int blocks_of(int tokens) {
  return (tokens + kBlockTokens - 1) / kBlockTokens;
}

}  // namespace

Result<std::shared_ptr<DraftModel>> DraftModel::load(const Options& options,
                                                     base::ThreadPool& pool) {
  TRY_ASSIGN(checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::open(options.model));
  if (checkpoint.config().vocab_size != options.vocab_size) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("--speculative-config: the draft model {} has {} tokens, the model {}: "
                    "give one with the same tokenizer",
                    options.model, checkpoint.config().vocab_size, options.vocab_size),
        "speculative-config"};
  }
  std::shared_ptr<DraftModel> made(new DraftModel(options, pool, std::move(checkpoint)));
  TRY(made->allocate());
  return made;
}

Result<int> DraftModel::context_of(const std::string& folder) {
  TRY_ASSIGN(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::open(folder));
  return checkpoint.config().context_max;
}

Result<int64_t> DraftModel::bytes_for(const Options& options, cost_model::KernelKind kernels,
                                      tensor::DType kv_dtype, int threads) {
  TRY_ASSIGN(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::open(options.model));
  int64_t bytes = cost_model::model_bytes(checkpoint, {.sequences_max = options.slot_count,
                                                       .batch_tokens_max = kBatchTokens,
                                                       .block_tokens = kBlockTokens,
                                                       .kv_dtype = kv_dtype,
                                                       .kernels = kernels,
                                                       .threads = threads});
  const families::KvGroups groups =
      families::kv_groups(checkpoint.config(), {.dtype = kv_dtype, .block_tokens = kBlockTokens});
  for (const kv::GroupSpec& group : groups.specs) {
    bytes += group.block_bytes * options.slot_count * blocks_of(options.tokens_max);
  }
  return bytes + GuessSampler::bytes_for(threads, checkpoint.config().vocab_size);
}

DraftModel::DraftModel(const Options& options, base::ThreadPool& pool,
                       checkpoint::Checkpoint checkpoint)
    : options_(options),
      pool_(pool),
      checkpoint_(std::move(checkpoint)),
      sampler_(pool, options.vocab_size) {}

Result<void> DraftModel::allocate() {
  TRY_ASSIGN(kernels_, kernels::make_kernels(options_.kernels, pool_));
  TRY_ASSIGN(model_, models::load_model(checkpoint_, *kernels_,
                                        {.batch_tokens_max = kBatchTokens,
                                         .logit_rows_max = options_.slot_count}));
  models::KvStorage::Options storage{.dtype = kernels_->kv_dtype(), .block_tokens = kBlockTokens};
  const int slot_blocks = blocks_of(options_.tokens_max);
  const families::KvGroups groups = families::kv_groups(
      checkpoint_.config(), {.dtype = storage.dtype, .block_tokens = kBlockTokens});
  for (int group = 0; group < groups.specs.size(); ++group) {
    storage.block_counts.push_back(options_.slot_count * slot_blocks);
  }
  TRY_ASSIGN(models::KvStorage kv, models::KvStorage::allocate(checkpoint_.config(), storage));
  kv_ = std::make_unique<models::KvStorage>(std::move(kv));
  blocks_.resize(static_cast<size_t>(options_.slot_count * slot_blocks));
  std::iota(blocks_.begin(), blocks_.end(), 0);
  slots_.resize(static_cast<size_t>(options_.slot_count));
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    slots_[slot].tokens.reserve(static_cast<size_t>(options_.tokens_max));
    for (int group = 0; group < groups.specs.size(); ++group) {
      slots_[slot].tables.push_back(blocks_.data() + slot * static_cast<size_t>(slot_blocks));
    }
  }
  return {};
}

int64_t DraftModel::bytes() const {
  return checkpoint_.weight_bytes() + model_->owned_weight_bytes() + model_->workspace_bytes() +
         kv_->bytes() + sampler_.bytes();
}

// What was kept for the slot stays, as far as the new sequence begins alike and may share it.
void DraftModel::begin(const NewSequence& sequence) {
  Slot& slot = slots_[static_cast<size_t>(sequence.slot)];
  const bool shares = !(sequence.origin == kv::BlockHash{}) && sequence.origin == slot.origin;
  if (!shares) slot.tokens.clear();
  slot.origin = sequence.origin;
  if (sequence.sampling != nullptr) slot.sampling = guess_params(*sequence.sampling);
}

Result<void> DraftModel::draft(std::span<DraftRequest> requests) {
  const base::SystemClock clock;
  const int64_t before_ns = clock.now_ns();
  std::vector<Chain> chains = catch_up(requests);
  const auto first_tokens = static_cast<int64_t>(input_.tokens.size());
  if (chains.empty()) catch_up_ns_ = clock.now_ns() - before_ns;
  bool is_first = true;
  while (!chains.empty()) {
    guess(chains, model_->forward(input_, *kv_, nullptr));
    if (std::exchange(is_first, false)) {
      catch_up_ns_ = (clock.now_ns() - before_ns) * missed_tokens_ / first_tokens;
    }
    const auto done = [this](const Chain& chain) {
      const DraftRequest& request = *chain.request;
      const size_t tokens = request.tokens.size() + request.guesses.size();
      return static_cast<int>(request.guesses.size()) == request.tokens_max ||
             static_cast<int>(tokens) > options_.tokens_max;
    };
    std::erase_if(chains, done);
    input_.tokens.clear();
    input_.sequences.clear();
    input_.logit_rows.clear();
    for (const Chain& chain : chains) {
      const TokenId newest = chain.request->guesses.back();
      input_.logit_rows.push_back(static_cast<int>(input_.tokens.size()));
      input_.sequences.push_back(
          {static_cast<int>(chain.slot->tokens.size()), 1, chain.slot->tables});
      input_.tokens.push_back(newest);
      chain.slot->tokens.push_back(newest);
    }
  }
  return {};
}

// One pass over what is not kept yet, the oldest request's first; whose newest token is among it
// can guess behind it. A pass without such a one is computed at once. Who is asked at each step
// lacks what that step gave, and the newest token.
std::vector<DraftModel::Chain> DraftModel::catch_up(std::span<DraftRequest> requests) {
  input_.tokens.clear();
  input_.sequences.clear();
  input_.logit_rows.clear();
  missed_tokens_ = 0;
  std::vector<Chain> chains;
  for (DraftRequest& request : requests) {
    Slot& slot = slots_[static_cast<size_t>(request.slot)];
    if (static_cast<int>(request.tokens.size()) > options_.tokens_max) continue;
    const auto same = std::mismatch(slot.tokens.begin(), slot.tokens.end(), request.tokens.begin(),
                                    request.tokens.end());
    // Its newest token is computed anew in any case: that is where the first guess comes from.
    const size_t kept =
        std::min(static_cast<size_t>(same.first - slot.tokens.begin()), request.tokens.size() - 1);
    const size_t room = static_cast<size_t>(kBatchTokens) - input_.tokens.size();
    const size_t count = std::min(request.tokens.size() - kept, room);
    if (count == 0) break;
    missed_tokens_ += std::max<int64_t>(static_cast<int64_t>(count) - request.tokens_max - 2, 0);
    const std::span<const TokenId> news = request.tokens.subspan(kept, count);
    slot.tokens.resize(kept);
    slot.tokens.insert(slot.tokens.end(), news.begin(), news.end());
    input_.tokens.insert(input_.tokens.end(), news.begin(), news.end());
    input_.sequences.push_back({static_cast<int>(kept), static_cast<int>(count), slot.tables});
    if (kept + count < request.tokens.size()) continue;
    input_.logit_rows.push_back(static_cast<int>(input_.tokens.size()) - 1);
    chains.push_back({&request, &slot});
  }
  if (chains.empty() && !input_.tokens.empty()) (void)model_->forward(input_, *kv_, nullptr);
  return chains;
}

// logits: float (chains, vocab).
void DraftModel::guess(std::span<const Chain> chains, float* logits) {
  rows_.clear();
  for (const Chain& chain : chains) {
    const DraftRequest& request = *chain.request;
    rows_.push_back({.params = &chain.slot->sampling,
                     .position = static_cast<int>(request.tokens.size() + request.guesses.size())});
  }
  sampler_.draw(rows_, logits, options_.vocab_size, options_.sampled_vocab);
  for (size_t i = 0; i < chains.size(); ++i) {
    // What is no number is no guess; this one is wrong, and costs a row.
    chains[i].request->guesses.push_back(rows_[i].usable ? rows_[i].guess : 0);
  }
}

}  // namespace pelton::speculative
