#include "models/encoder.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/kv_quantization.h"

namespace pelton::models {
namespace {

kernels::StepCapacity step_capacity(const families::ModelConfig& config,
                                    const Model::Options& options) {
  return {.tokens = options.batch_tokens_max,
          .widest = std::max(config.hidden_size, config.intermediate_size)};
}

}  // namespace

Encoder::Encoder(const families::ModelConfig& config, kernels::Kernels& kernels,
                 const Options& options)
    : config_(config),
      kernels_(kernels),
      options_(options),
      space_(config, options.batch_tokens_max),
      x_(size_t{1} * static_cast<size_t>(options.batch_tokens_max) *
         static_cast<size_t>(config.hidden_size)),
      ids_(static_cast<size_t>(options.batch_tokens_max)) {}

Result<std::unique_ptr<Encoder>> Encoder::load(const checkpoint::Checkpoint& checkpoint,
                                               kernels::Kernels& kernels, const Options& options) {
  const families::ModelConfig& config = checkpoint.config();
  if (config.head_size > kernels::kHeadSizeMax) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("config.json: hidden_size {} and num_attention_heads {} make heads of "
                             "{}; the kernels take at most {}",
                             config.hidden_size, config.head_count, config.head_size,
                             kernels::kHeadSizeMax)};
  }
  std::unique_ptr<Encoder> model(new Encoder(config, kernels, options));
  kernels.reserve(step_capacity(config, options));
  const int hidden = config.hidden_size;
  TRY_ASSIGN(model->words_, layers::load_matrix(checkpoint, "model.embed_tokens.weight",
                                                config.vocab_size, hidden));
  TRY_ASSIGN(model->positions_, layers::load_matrix(checkpoint, "model.embed_positions.weight",
                                                    config.encoder.position_rows, hidden));
  TRY_ASSIGN(model->types_, layers::load_matrix(checkpoint, "model.embed_types.weight",
                                                config.encoder.type_rows, hidden));
  TRY_ASSIGN(model->norm_,
             layers::load_layer_norm(checkpoint, "model.embed_norm", hidden, model->vectors_));
  for (int layer = 0; layer < config.layer_count(); ++layer) {
    TRY_ASSIGN(layers::EncoderLayer loaded, layers::EncoderLayer::load(checkpoint, layer));
    model->layers_.push_back(std::move(loaded));
  }
  TRY_ASSIGN(model->labels_, layers::LabelHead::load(checkpoint));
  return model;
}

float* Encoder::forward(const ForwardInput& input, KvStorage& /*kv*/, HiddenTap* tap) {
  const int tokens = static_cast<int>(input.tokens.size());
  CHECK(tokens > 0 && tokens <= options_.batch_tokens_max);
  CHECK(input.logit_rows.empty(), "an encoder has no logits");
  std::vector<int> lengths;
  for (const ForwardInput::Sequence& sequence : input.sequences) {
    CHECK(sequence.start == 0, "an encoder takes whole texts");
    CHECK(sequence.count <= config_.context_max);
    lengths.push_back(sequence.count);
  }
  embed(input);
  if (tap != nullptr) (*tap)(0, x_.data(), tokens);
  for (int layer = 0; layer < config_.layer_count(); ++layer) {
    const layers::EncoderLayer& at = layers_[static_cast<size_t>(layer)];
    at.attend(kernels_, x_.data(), tokens, lengths, space_);
    if (tap != nullptr) (*tap)(1 + 2 * layer, x_.data(), tokens);
    at.feed_forward(kernels_, x_.data(), tokens, space_);
    if (tap != nullptr) (*tap)(2 + 2 * layer, x_.data(), tokens);
  }
  return nullptr;
}

// LN(word + position + type).
void Encoder::embed(const ForwardInput& input) {
  const int tokens = static_cast<int>(input.tokens.size());
  kernels_.embed(x_.data(), input.tokens.data(), tokens, words_);
  size_t at = 0;
  for (const ForwardInput::Sequence& sequence : input.sequences) {
    for (int i = 0; i < sequence.count; ++i) ids_[at++] = config_.encoder.first_position + i;
  }
  add_rows(positions_, tokens);
  at = 0;
  for (const ForwardInput::Sequence& sequence : input.sequences) {
    // A table of one row has no second type: RoBERTa's pairs have separators only.
    const bool in_two = sequence.second_text > 0 && config_.encoder.type_rows > 1;
    for (int i = 0; i < sequence.count; ++i) {
      ids_[at++] = in_two && i >= sequence.second_text ? 1 : 0;
    }
  }
  add_rows(types_, tokens);
  kernels_.layer_norm(x_.data(), x_.data(), norm_.weight, norm_.bias, tokens, config_.hidden_size,
                      static_cast<float>(config_.encoder.layer_norm_epsilon));
}

void Encoder::add_rows(const kernels::Matrix& table, int tokens) {
  float* const rows = space_.mixed.data();
  kernels_.embed(rows, ids_.data(), tokens, table);
  const int64_t elements = int64_t{tokens} * config_.hidden_size;
  for (int64_t i = 0; i < elements; ++i) x_[static_cast<size_t>(i)] += rows[i];
}

void Encoder::normed_rows(std::span<const int> rows,
                          base::FunctionRef<void(size_t index, const float* state)> sees) {
  for (size_t i = 0; i < rows.size(); ++i) {
    sees(i, x_.data() + int64_t{rows[i]} * config_.hidden_size);
  }
}

void Encoder::logits_of(
    std::span<const int> rows,
    base::FunctionRef<void(size_t first, float* logits, size_t count)> /*sees*/) {
  CHECK(rows.empty(), "an encoder has no logits");
}

void Encoder::head(float* /*logits*/, const float* /*x*/, int rows) {
  CHECK(rows == 0, "an encoder has no logits");
}

void Encoder::labels_of(const float* state, float* logits) {
  labels_.forward(kernels_, logits, state);
}

void Encoder::token_logits_of(const float* /*state*/, std::span<const TokenId> tokens,
                              float* /*logits*/) {
  CHECK(tokens.empty(), "an encoder has no logits");
}

double Encoder::weight_bytes_of_step(int /*sequences*/) const {
  auto bytes = static_cast<double>(vectors_.bytes());
  for (const layers::EncoderLayer& layer : layers_) {
    bytes += static_cast<double>(layer.weight_bytes());
  }
  return bytes;
}

int64_t Encoder::owned_weight_bytes() const {
  int64_t bytes = vectors_.bytes() + labels_.owned_bytes();
  for (const layers::EncoderLayer& layer : layers_) bytes += layer.owned_bytes();
  return bytes;
}

int64_t Encoder::workspace_bytes() const {
  return space_.bytes() + labels_.scratch_bytes() +
         static_cast<int64_t>(x_.capacity() * sizeof(float) + ids_.capacity() * sizeof(TokenId)) +
         kernels_.scratch_bytes();
}

}  // namespace pelton::models
