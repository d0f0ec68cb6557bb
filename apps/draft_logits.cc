#include "apps/draft_logits.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "models/sequence_runner.h"
#include "speculative/eagle3_head.h"
#include "speculative/medusa_heads.h"
#include "tensor/npy.h"

namespace pelton::apps {
namespace {

using speculative::Eagle3Head;
using speculative::MedusaHeads;

constexpr int kBlockTokens = 16;

TokenId likeliest(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// A head beside its target: what it keeps of one sequence.
class HeadRun {
 public:
  static Result<HeadRun> make(const DraftLogits& job, const checkpoint::Checkpoint& target,
                              kernels::Kernels& kernels) {
    TRY_ASSIGN(Eagle3Head head, Eagle3Head::load(job.folder, target, kernels));
    const int tokens = static_cast<int>(job.ids.size()) + job.chain;
    models::KvStorage::Options storage{.dtype = job.kv_dtype, .block_tokens = kBlockTokens};
    storage.block_counts.push_back((tokens + kBlockTokens - 1) / kBlockTokens);
    TRY_ASSIGN(models::KvStorage kv, models::KvStorage::allocate(head.config().layer, storage));
    return HeadRun(job, std::move(head), std::move(kv));
  }

  int vocab() const { return head_.draft_vocab(); }

  // The taps of positions [start, start + rows) of the target, one after the other.
  void see(size_t tap, const float* x, int rows) {
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(
          x + row * hidden_, hidden_,
          taps_.data() + (row * speculative::kEagle3Taps + static_cast<int64_t>(tap)) * hidden_);
    }
  }
  std::span<const int> taps() const { return head_.config().taps; }

  // Those of positions [start, start + rows) are complete: the guesses behind each but the last of
  // the sequence.
  Result<void> guess(int start, int rows, tensor::NpyWriter& writer) {
    std::vector<float> features(static_cast<size_t>(rows) * static_cast<size_t>(hidden_));
    head_.combine(features.data(), taps_.data(), rows);
    for (int row = 0; row < rows; ++row) {
      const int next = start + row + 1;
      if (next == static_cast<int>(job_.ids.size())) break;
      TRY(guess_behind(next, features.data() + row * hidden_, writer));
    }
    return {};
  }

 private:
  HeadRun(const DraftLogits& job, Eagle3Head head, models::KvStorage kv)
      : job_(job),
        head_(std::move(head)),
        kv_(std::move(kv)),
        hidden_(head_.hidden()),
        blocks_(static_cast<size_t>(kv_.options().block_counts[0])),
        taps_(static_cast<size_t>(job.chunk) * speculative::kEagle3Taps *
              static_cast<size_t>(hidden_)),
        state_(static_cast<size_t>(hidden_)) {
    std::iota(blocks_.begin(), blocks_.end(), 0);
  }

  // Behind the token at `position`, of which the target knows the one before: slot `position` of
  // the head. Its own slots are overwritten when the next token's turn comes.
  Result<void> guess_behind(int position, const float* feature, tensor::NpyWriter& writer) {
    Eagle3Head::Row row{.token = job_.ids[static_cast<size_t>(position)],
                        .feature = feature,
                        .position = position - 1,
                        .place = position - 1,
                        .blocks = blocks_.data()};
    for (int guess = 0; guess < job_.chain; ++guess) {
      const float* const logits = head_.forward({&row, 1}, kv_.layer(0), state_.data());
      const std::span<const float> of_guess(logits, static_cast<size_t>(vocab()));
      TRY(writer.append(of_guess));
      row = {.token = head_.target_id(likeliest(of_guess)),
             .feature = state_.data(),
             .position = row.position + 1,
             .place = row.place + 1,
             .blocks = row.blocks};
    }
    return {};
  }

  const DraftLogits& job_;
  Eagle3Head head_;
  models::KvStorage kv_;
  int64_t hidden_;
  std::vector<int32_t> blocks_;
  std::vector<float> taps_;
  std::vector<float> state_;
};

Result<void> write_head_logits(const DraftLogits& job, const checkpoint::Checkpoint& target,
                               models::Model& model, base::ThreadPool& pool) {
  TRY_ASSIGN(const std::unique_ptr<kernels::Kernels> kernels,
             kernels::make_kernels(job.kernels, pool));
  TRY_ASSIGN(HeadRun head, HeadRun::make(job, target, *kernels));
  const auto tokens = static_cast<int>(job.ids.size());
  TRY_ASSIGN(models::SequenceRunner runner,
             models::SequenceRunner::make(model, job.kv_dtype, tokens));
  TRY_ASSIGN(tensor::NpyWriter writer,
             tensor::NpyWriter::create(job.out, {tokens, job.chain, head.vocab()}));
  const std::vector<float> zeros(static_cast<size_t>(job.chain) *
                                 static_cast<size_t>(head.vocab()));
  TRY(writer.append(zeros));
  const auto see = [&head](int index, const float* x, int rows) {
    for (size_t tap = 0; tap < head.taps().size(); ++tap) {
      if (index == 2 * head.taps()[tap]) head.see(tap, x, rows);
    }
  };
  models::HiddenTap tap(see);
  for (int start = 0; start < tokens; start += job.chunk) {
    const int count = std::min(job.chunk, tokens - start);
    (void)runner.step(
        std::span(job.ids).subspan(static_cast<size_t>(start), static_cast<size_t>(count)), {},
        &tap);
    TRY(head.guess(start, count, writer));
  }
  return writer.finish();
}

// Row p's guesses come from the target's state of p alone.
Result<void> write_medusa_logits(const DraftLogits& job, const checkpoint::Checkpoint& target,
                                 models::Model& model, base::ThreadPool& pool) {
  TRY_ASSIGN(const std::unique_ptr<kernels::Kernels> kernels,
             kernels::make_kernels(job.kernels, pool));
  const auto target_head = [&model](float* logits, const float* x, int rows) {
    model.head(logits, x, rows);
  };
  TRY_ASSIGN(MedusaHeads heads, MedusaHeads::load(job.folder, target, target_head, *kernels));
  if (job.chain > heads.count()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--draft-chain {}: {} has {} Medusa heads: give at most {}", job.chain,
                             job.folder, heads.count(), heads.count())};
  }
  const auto tokens = static_cast<int>(job.ids.size());
  TRY_ASSIGN(models::SequenceRunner runner,
             models::SequenceRunner::make(model, job.kv_dtype, tokens));
  TRY_ASSIGN(tensor::NpyWriter writer,
             tensor::NpyWriter::create(job.out, {tokens, job.chain, heads.draft_vocab()}));
  const int64_t hidden = target.config().hidden_size;
  const int last = 2 * target.config().layer_count();
  std::vector<float> states(static_cast<size_t>(job.chunk) * static_cast<size_t>(hidden));
  const auto see = [&](int index, const float* x, int rows) {
    if (index == last) std::copy_n(x, rows * hidden, states.data());
  };
  models::HiddenTap tap(see);
  for (int start = 0; start < tokens; start += job.chunk) {
    const int count = std::min(job.chunk, tokens - start);
    (void)runner.step(
        std::span(job.ids).subspan(static_cast<size_t>(start), static_cast<size_t>(count)), {},
        &tap);
    heads.norm(states.data(), count);
    for (int64_t row = 0; row < count; ++row) {
      const float* const logits = heads.forward(states.data() + row * hidden, 1, job.chain);
      TRY(writer.append(
          {logits, static_cast<size_t>(job.chain) * static_cast<size_t>(heads.draft_vocab())}));
    }
  }
  return writer.finish();
}

// A draft model goes on from the tokens by itself.
Result<void> write_model_logits(const DraftLogits& job, base::ThreadPool& pool) {
  TRY_ASSIGN(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::open(job.folder));
  TRY_ASSIGN(const std::unique_ptr<kernels::Kernels> kernels,
             kernels::make_kernels(job.kernels, pool));
  TRY_ASSIGN(
      const std::unique_ptr<models::Model> model,
      models::load_model(checkpoint, *kernels, {.batch_tokens_max = 1, .logit_rows_max = 1}));
  const auto vocab = static_cast<size_t>(checkpoint.config().vocab_size);
  const auto tokens = static_cast<int>(job.ids.size());
  TRY_ASSIGN(models::SequenceRunner runner,
             models::SequenceRunner::make(*model, job.kv_dtype, tokens + job.chain));
  TRY_ASSIGN(
      tensor::NpyWriter writer,
      tensor::NpyWriter::create(job.out, {tokens, job.chain, checkpoint.config().vocab_size}));
  constexpr int kFirstRow[] = {0};
  for (int position = 0; position < tokens; ++position) {
    runner.rewind(position);
    TokenId token = job.ids[static_cast<size_t>(position)];
    for (int guess = 0; guess < job.chain; ++guess) {
      if (token >= checkpoint.config().vocab_size) {
        return Error{ErrorCode::kInvalidArgument,
                     fmt::format("token {} is beyond the draft model's vocabulary of {}", token,
                                 checkpoint.config().vocab_size)};
      }
      const std::span<const float> logits(runner.step({&token, 1}, kFirstRow, nullptr), vocab);
      TRY(writer.append(logits));
      token = likeliest(logits);
    }
  }
  return writer.finish();
}

}  // namespace

Result<void> write_draft_logits(const DraftLogits& job, const checkpoint::Checkpoint& target,
                                models::Model& model, base::ThreadPool& pool) {
  TRY_ASSIGN(const bool is_head, Eagle3Head::is_in(job.folder));
  if (is_head) return write_head_logits(job, target, model, pool);
  TRY_ASSIGN(const bool is_medusa, MedusaHeads::is_in(job.folder));
  return is_medusa ? write_medusa_logits(job, target, model, pool) : write_model_logits(job, pool);
}

}  // namespace pelton::apps
