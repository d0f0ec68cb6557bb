#include "apps/decode_bench.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/random.h"

namespace pelton::apps {
namespace {

constexpr int kChunk = 512;
constexpr int kBlockTokens = 16;

int blocks_for(int tokens) {
  return (tokens + kBlockTokens - 1) / kBlockTokens;
}

// Blocks that a sequence needs in a group: all of its length, or those of a window while a chunk
// goes through, used round and round.
int blocks_of_sequence(const kv::GroupSpec& group, int length) {
  return group.slides() ? blocks_for(group.sliding_window + kChunk) + 1 : blocks_for(length);
}

}  // namespace

models::Model::Options DecodeBench::model_options(const Options& options) {
  models::Model::Options model{.batch_tokens_max = std::max(kChunk, options.batch_size),
                               .logit_rows_max = options.batch_size};
  for (const lora::Adapter* adapter : options.adapters) {
    model.adapter_rank_max = std::max(model.adapter_rank_max, adapter->rank_max());
    model.expert_adapters |= adapter->adds_to_experts();
  }
  return model;
}

Result<DecodeBench> DecodeBench::make(models::Model& model, tensor::DType kv_dtype,
                                      const Options& options) {
  const families::ModelConfig& config = model.config();
  const int64_t length = int64_t{options.depth} + options.input_len + options.output_len;
  if (length > config.context_max) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("depth, input and output are {} tokens; the model's context is {}",
                             length, config.context_max)};
  }
  models::KvStorage::Options kv_options{.dtype = kv_dtype, .block_tokens = kBlockTokens};
  for (const kv::GroupSpec& group : families::kv_groups(config, {}).specs) {
    kv_options.block_counts.push_back(blocks_of_sequence(group, static_cast<int>(length)) *
                                      options.batch_size);
  }
  TRY_ASSIGN(models::KvStorage kv, models::KvStorage::allocate(config, kv_options));
  return DecodeBench(model, std::move(kv), options);
}

DecodeBench::DecodeBench(models::Model& model, models::KvStorage kv, const Options& options)
    : model_(&model), kv_(std::move(kv)), options_(options) {
  const int blocks = blocks_for(options.depth + options.input_len + options.output_len);
  for (int s = 0; s < options.batch_size; ++s) {
    kv::PerGroup<std::vector<int32_t>>& tables = tables_.emplace_back();
    for (const int block_count : kv_.options().block_counts) {
      const int ring = block_count / options.batch_size;
      std::vector<int32_t> table;
      for (int b = 0; b < blocks; ++b) table.push_back(s * ring + b % ring);
      tables.push_back(std::move(table));
    }
    next_.push_back(random_token());
  }
}

TokenId DecodeBench::random_token() {
  const uint64_t bits = base::random_bits(options_.seed, draws_++);
  return static_cast<TokenId>(bits % static_cast<uint64_t>(model_->config().vocab_size));
}

void DecodeBench::fill_depth() {
  prefill(0, 0, options_.depth);
  for (int group = 0; group < kv_.groups().specs.size(); ++group) {
    const int blocks = std::min(blocks_for(options_.depth),
                                kv_.options().block_counts[group] / options_.batch_size);
    for (size_t s = 1; s < tables_.size(); ++s) copy_first(tables_[s], group, blocks);
  }
}

void DecodeBench::copy_first(const kv::PerGroup<std::vector<int32_t>>& tables, int group,
                             int blocks) {
  for (size_t b = 0; b < static_cast<size_t>(blocks); ++b) {
    for (int layer = 0; layer < kv_.layer_count(); ++layer) {
      kv_.copy_block(kv_, {.group = group, .from = tables_[0][group][b], .to = tables[group][b]},
                     layer);
    }
  }
}

template <typename Piece>
void DecodeBench::time_piece(const base::Clock& clock, const Piece& piece, Times& times) {
  const auto timed = [&](bool uses_adapters, std::vector<double>& seconds) {
    uses_adapters_ = uses_adapters;
    const int64_t start_ns = clock.now_ns();
    piece();
    seconds.push_back(static_cast<double>(clock.now_ns() - start_ns) * 1e-9);
  };
  if (options_.adapters.empty()) return timed(false, times.measured);
  const uint64_t draws = draws_;
  const std::vector<TokenId> next = next_;
  const bool base_is_first = times.measured.size() % 2 == 0;
  timed(!base_is_first, base_is_first ? times.of_base : times.measured);
  draws_ = draws;
  next_ = next;
  timed(base_is_first, base_is_first ? times.measured : times.of_base);
}

DecodeBench::Times DecodeBench::time_prefill(const base::Clock& clock) {
  Times times;
  for (int s = 0; s < options_.batch_size; ++s) {
    time_piece(
        clock, [&] { prefill(s, options_.depth, options_.depth + options_.input_len); }, times);
  }
  return times;
}

DecodeBench::Times DecodeBench::time_decode(const base::Clock& clock) {
  const int begin = options_.depth + options_.input_len;
  Times times;
  for (int i = 0; i < options_.output_len; ++i) {
    time_piece(
        clock, [&] { decode(begin + i); }, times);
  }
  return times;
}

// Greedily. A broken row has no best: then the first token.
TokenId DecodeBench::best_of(float* logits) {
  static const request::SamplingParams kGreedy{.temperature = 0};
  const auto vocab = static_cast<size_t>(model_->config().vocab_size);
  const sampling::SampledChoice choice = sampler_.sample({logits, vocab}, {.params = kGreedy});
  return choice.usable ? choice.token : 0;
}

models::ForwardInput::Sequence DecodeBench::sequence(int index, int start, int count) const {
  kv::PerGroup<const int32_t*> tables;
  for (const std::vector<int32_t>& table : tables_[static_cast<size_t>(index)]) {
    tables.push_back(table.data());
  }
  const std::vector<const lora::Adapter*>& adapters = options_.adapters;
  const lora::Adapter* const adapter =
      uses_adapters_ ? adapters[static_cast<size_t>(index) % adapters.size()] : nullptr;
  return {.start = start, .count = count, .tables = tables, .adapter = adapter};
}

void DecodeBench::prefill(int sequence_index, int from, int to) {
  for (int start = from; start < to; start += kChunk) {
    const int count = std::min(kChunk, to - start);
    models::ForwardInput input;
    for (int i = 0; i < count; ++i) input.tokens.push_back(random_token());
    input.sequences.push_back(sequence(sequence_index, start, count));
    const bool last = start + count == to;
    if (last) input.logit_rows.push_back(count - 1);
    float* logits = model_->forward(input, kv_, nullptr);
    if (last) next_[static_cast<size_t>(sequence_index)] = best_of(logits);
  }
}

void DecodeBench::decode(int position) {
  const int vocab = model_->config().vocab_size;
  models::ForwardInput input;
  for (int s = 0; s < options_.batch_size; ++s) {
    input.tokens.push_back(next_[static_cast<size_t>(s)]);
    input.sequences.push_back(sequence(s, position, 1));
    input.logit_rows.push_back(s);
  }
  float* logits = model_->forward(input, kv_, nullptr);
  for (int s = 0; s < options_.batch_size; ++s) {
    next_[static_cast<size_t>(s)] = best_of(logits + int64_t{s} * vocab);
  }
}

}  // namespace pelton::apps
