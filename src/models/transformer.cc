#include "models/transformer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "families/family.h"
#include "kernels/kv_quantization.h"
#include "kernels/latent_rows.h"

namespace pelton::models {
namespace {

Result<void> multiple(int value, int of, const char* name) {
  if (value % of == 0) return {};
  return Error{
      ErrorCode::kUnsupported,
      fmt::format("config.json: {} is {}; the kernels need a multiple of {}", name, value, of)};
}

Result<void> check_latent_widths(const families::ModelConfig& config) {
  const families::LatentConfig& latent = config.latent;
  TRY(multiple(latent.kv_rank, 16, "kv_lora_rank"));
  if (latent.keys_transposed) TRY(multiple(latent.nope_size, 32, "qk_nope_head_dim"));
  const int width = latent.kv_rank + latent.rope_size;
  if (width <= kernels::kLatentWidthMax) return {};
  return Error{ErrorCode::kUnsupported,
               fmt::format("config.json: kv_lora_rank and qk_rope_head_dim make {}; the kernels "
                           "take at most {}",
                           width, kernels::kLatentWidthMax)};
}

// Of MXFP4 the kernels read a block of 32 columns at a time; elsewhere they take any size.
Result<void> check_widths(const families::ModelConfig& config) {
  if (config.family->expert_files == families::ExpertFiles::kMxfp4) {
    TRY(multiple(config.hidden_size, 32, "hidden_size"));
    TRY(multiple(config.expert_intermediate_size, 32, "the experts' intermediate_size"));
  }
  if (config.is_latent()) return check_latent_widths(config);
  if (config.head_size > kernels::kHeadSizeMax) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("config.json: head_dim is {}; the kernels take at most {}",
                             config.head_size, kernels::kHeadSizeMax)};
  }
  return {};
}

kernels::StepCapacity scratch_shape(const checkpoint::Checkpoint& checkpoint,
                                    const Transformer::Options& options) {
  const families::ModelConfig& config = checkpoint.config();
  return {.tokens = options.batch_tokens_max,
          .hidden = config.hidden_size,
          .inner = config.expert_intermediate_size,
          .experts = config.expert_count,
          .experts_per_token = config.experts_per_token,
          .widest = std::max({config.hidden_size, config.widest_mlp(),
                              config.expert_intermediate_size, config.q_size()}),
          .reordered = config.int_weights.reordered,
          .tiled = checkpoint.weight_layout() == families::WeightLayout::kTiled,
          .adapter_rank = options.adapter_rank_max,
          .expert_adapters = options.expert_adapters && config.has_experts(),
          .activations = layers::activations_of(checkpoint)};
}

// Those of several ranks are the leader's.
bool has_logits(const Model::Options& options) {
  return options.part == nullptr || options.part->is_leader();
}

}  // namespace

Transformer::Transformer(const families::ModelConfig& config, kernels::Kernels& kernels,
                         const Options& options)
    : config_(config),
      kernels_(kernels),
      options_(options),
      rotary_(config),
      attention_space_(config, options.batch_tokens_max),
      feed_forward_space_(config, options.batch_tokens_max),
      x_(size_t{1} * options.batch_tokens_max * config.hidden_size),
      cos_sin_(size_t{1} * options.batch_tokens_max * config.rotary_size()),
      head_in_(size_t{1} * options.logit_rows_max * config.hidden_size),
      logits_(has_logits(options) ? size_t{1} * options.logit_rows_max * config.vocab_size : 0) {
  if (options.adapter_rank_max > 0) adapters_.reserve(options.batch_tokens_max);
  if (!config.sliding_rope) return;
  sliding_rotary_.emplace(*config.sliding_rope, config.rotary_size());
  sliding_cos_sin_.resize(cos_sin_.size());
}

Result<std::unique_ptr<Transformer>> Transformer::load(const checkpoint::Checkpoint& checkpoint,
                                                       kernels::Kernels& kernels,
                                                       const Options& options) {
  const families::ModelConfig& config = checkpoint.config();
  TRY(check_widths(config));
  std::unique_ptr<Transformer> model(new Transformer(config, kernels, options));
  kernels.reserve(scratch_shape(checkpoint, options));
  const int hidden = config.hidden_size;
  TRY_ASSIGN(model->embedding_, layers::load_matrix(checkpoint, "model.embed_tokens.weight",
                                                    config.vocab_size, hidden));
  TRY_ASSIGN(model->norm_,
             layers::load_norm(checkpoint, "model.norm.weight", hidden, model->vectors_));
  layers::RankPart* const part = options.part;
  if (part != nullptr) {
    part->reserve(config, options.batch_tokens_max, options.logit_rows_max);
  }
  TRY_ASSIGN(model->head_, layers::OutputHead::load(checkpoint, part));
  TRY_ASSIGN(model->labels_, layers::LabelHead::load(checkpoint));
  for (int layer = 0; layer < config.layer_count(); ++layer) {
    TRY_ASSIGN(auto attention, layers::load_attention(checkpoint, layer, part));
    TRY_ASSIGN(auto feed_forward, layers::load_feed_forward(checkpoint, layer, part));
    model->attention_.push_back(std::move(attention));
    model->feed_forward_.push_back(std::move(feed_forward));
  }
  return model;
}

float* Transformer::forward(const ForwardInput& input, KvStorage& kv, HiddenTap* tap) {
  const int tokens = static_cast<int>(input.tokens.size());
  CHECK(tokens > 0 && tokens <= options_.batch_tokens_max);
  CHECK(static_cast<int>(input.logit_rows.size()) <= options_.logit_rows_max);

  kv::PerGroup<std::vector<kernels::SequenceRows>> rows_of;
  rows_of.resize(kv.groups().specs.size());
  int row = 0;
  adapters_.begin(options_.adapter_rank_max > 0 ? tokens : 0);
  for (const ForwardInput::Sequence& sequence : input.sequences) {
    if (options_.adapter_rank_max > 0) {
      const int own = std::clamp(sequence.adapter_from - sequence.start, 0, sequence.count);
      adapters_.add_rows(nullptr, own);
      adapters_.add_rows(own < sequence.count ? sequence.adapter : nullptr, sequence.count - own);
    }
    for (int group = 0; group < rows_of.size(); ++group) {
      rows_of[group].push_back({row, sequence.count, sequence.start, sequence.tables[group]});
    }
    for (int i = 0; i < sequence.count; ++i) {
      turn(row + i, sequence.start + i);
    }
    row += sequence.count;
  }
  CHECK(row == tokens);
  adapters_.end();

  embed(input.tokens);
  if (tap != nullptr) (*tap)(0, x_.data(), tokens);
  for (int layer = 0; layer < config_.layer_count(); ++layer) {
    const layers::LayerAdapters adapters =
        adapters_.empty() ? layers::LayerAdapters() : layers::LayerAdapters(adapters_, layer);
    attention_[layer]->forward(kernels_, x_.data(), tokens, cos_sin(layer), kv.layer(layer),
                               rows_of[kv.groups().of_layer[layer]], adapters, attention_space_);
    if (tap != nullptr) (*tap)(1 + 2 * layer, x_.data(), tokens);
    feed_forward_[layer]->forward(kernels_, x_.data(), tokens, adapters, feed_forward_space_);
    if (tap != nullptr) (*tap)(2 + 2 * layer, x_.data(), tokens);
  }

  const int rows = static_cast<int>(input.logit_rows.size());
  if (rows == 0) return logits_.data();
  norm_into_head(input.logit_rows);
  head_.forward_shared(kernels_, logits_.data(), head_in_.data(), rows);
  return logits_.data();
}

void Transformer::turn(int row, int position) {
  const int64_t at = int64_t{row} * config_.rotary_size();
  rotary_.table_row(position, cos_sin_.data() + at);
  if (sliding_rotary_) sliding_rotary_->table_row(position, sliding_cos_sin_.data() + at);
}

const float* Transformer::cos_sin(int layer) const {
  return sliding_rotary_ && config_.is_sliding(layer) ? sliding_cos_sin_.data() : cos_sin_.data();
}

void Transformer::embed(std::span<const TokenId> tokens) {
  const int count = static_cast<int>(tokens.size());
  kernels_.embed(x_.data(), tokens.data(), count, embedding_);
  if (config_.embedding_scale == 1.0) return;
  const auto scale = static_cast<float>(config_.embedding_scale);
  const int64_t elements = int64_t{count} * config_.hidden_size;
  for (int64_t i = 0; i < elements; ++i) x_[i] *= scale;
}

void Transformer::norm_into_head(std::span<const int> rows) {
  const int hidden = config_.hidden_size;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(x_.data() + int64_t{rows[i]} * hidden, hidden,
                head_in_.data() + static_cast<int64_t>(i) * hidden);
  }
  kernels_.rms_norm(head_in_.data(), head_in_.data(), norm_, static_cast<int>(rows.size()), hidden,
                    static_cast<float>(config_.rms_norm_epsilon));
}

void Transformer::normed_rows(std::span<const int> rows,
                              base::FunctionRef<void(size_t index, const float* state)> sees) {
  const auto at_once = static_cast<size_t>(options_.logit_rows_max);
  for (size_t first = 0; first < rows.size(); first += at_once) {
    const size_t count = std::min(at_once, rows.size() - first);
    norm_into_head(rows.subspan(first, count));
    for (size_t i = 0; i < count; ++i) {
      sees(first + i, head_in_.data() + static_cast<int64_t>(i) * config_.hidden_size);
    }
  }
}

void Transformer::logits_of(
    std::span<const int> rows,
    base::FunctionRef<void(size_t first, float* logits, size_t count)> sees) {
  const auto at_once = static_cast<size_t>(options_.logit_rows_max);
  for (size_t first = 0; first < rows.size(); first += at_once) {
    const size_t count = std::min(at_once, rows.size() - first);
    norm_into_head(rows.subspan(first, count));
    head_.forward(kernels_, logits_.data(), head_in_.data(), static_cast<int>(count));
    sees(first, logits_.data(), count);
  }
}

// No more at once than the kernels have room for.
void Transformer::head(float* logits, const float* x, int rows) {
  for (int64_t first = 0; first < rows; first += options_.batch_tokens_max) {
    const auto count = static_cast<int>(std::min<int64_t>(options_.batch_tokens_max, rows - first));
    head_.forward(kernels_, logits + first * config_.vocab_size, x + first * config_.hidden_size,
                  count);
  }
}

void Transformer::labels_of(const float* state, float* logits) {
  labels_.forward(kernels_, logits, state);
}

void Transformer::token_logits_of(const float* state, std::span<const TokenId> tokens,
                                  float* logits) {
  head_.forward_some(kernels_, logits_.data(), state, tokens);
  for (size_t i = 0; i < tokens.size(); ++i) logits[i] = logits_[static_cast<size_t>(tokens[i])];
}

double Transformer::weight_bytes_of_step(int sequences) const {
  auto bytes = static_cast<double>(head_.weight_bytes(sequences) + vectors_.bytes());
  for (const auto& block : attention_) bytes += static_cast<double>(block->weight_bytes());
  for (const auto& block : feed_forward_) bytes += block->weight_bytes(sequences);
  return bytes;
}

int64_t Transformer::owned_weight_bytes() const {
  int64_t bytes = vectors_.bytes();
  for (const auto& block : attention_) bytes += block->owned_bytes();
  for (const auto& block : feed_forward_) bytes += block->owned_bytes();
  return bytes;
}

int64_t Transformer::workspace_bytes() const {
  const size_t floats = x_.capacity() + cos_sin_.capacity() + sliding_cos_sin_.capacity() +
                        head_in_.capacity() + logits_.capacity();
  return adapters_.bytes() + attention_space_.bytes() + feed_forward_space_.bytes() +
         head_.scratch_bytes() + static_cast<int64_t>(floats * sizeof(float)) +
         kernels_.scratch_bytes();
}

}  // namespace pelton::models
