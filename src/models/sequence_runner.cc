#include "models/sequence_runner.h"

#include <numeric>

namespace pelton::models {

Result<SequenceRunner> SequenceRunner::make(Model& model, tensor::DType kv_dtype, int tokens_max) {
  KvStorage::Options options{.dtype = kv_dtype};
  const int blocks = (tokens_max + options.block_tokens - 1) / options.block_tokens;
  options.block_counts.assign(families::kv_groups(model.config(), {}).specs.size(), blocks);
  TRY_ASSIGN(KvStorage kv, KvStorage::allocate(model.config(), options));
  return SequenceRunner(model, std::move(kv), tokens_max);
}

SequenceRunner::SequenceRunner(Model& model, KvStorage kv, int tokens_max)
    : model_(&model),
      kv_(std::move(kv)),
      blocks_(static_cast<size_t>(kv_.options().block_counts[0])),
      tokens_max_(tokens_max) {
  std::iota(blocks_.begin(), blocks_.end(), 0);
}

const float* SequenceRunner::step(std::span<const TokenId> tokens, std::span<const int> logit_rows,
                                  HiddenTap* tap) {
  const int count = static_cast<int>(tokens.size());
  CHECK(length_ + count <= tokens_max_);
  ForwardInput input;
  input.tokens.assign(tokens.begin(), tokens.end());
  // Every group has as many blocks, and the sequence all of them.
  kv::PerGroup<const int32_t*> tables;
  tables.assign(kv_.groups().specs.size(), blocks_.data());
  input.sequences.push_back({length_, count, tables, adapter_, adapter_from_});
  input.logit_rows.assign(logit_rows.begin(), logit_rows.end());
  length_ += count;
  return model_->forward(input, kv_, tap);
}

}  // namespace pelton::models
