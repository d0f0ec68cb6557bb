// An encoder (BERT, RoBERTa) as its configuration describes it: one flat batch of whole texts
// without padding, of which each token's last state is what is asked for. Keeps nothing from step
// to step.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "layers/encoder_layer.h"
#include "layers/label_head.h"
#include "layers/weights.h"
#include "models/model.h"

namespace pelton::models {

class Encoder final : public Model {
 public:
  static Result<std::unique_ptr<Encoder>> load(const checkpoint::Checkpoint& checkpoint,
                                               kernels::Kernels& kernels, const Options& options);

  const families::ModelConfig& config() const override { return config_; }
  const Options& options() const override { return options_; }
  // Whole texts, each beginning at 0, and no row of logits: there is no head over the vocabulary.
  float* forward(const ForwardInput& input, KvStorage& kv, HiddenTap* tap) override;
  void normed_rows(std::span<const int> rows,
                   base::FunctionRef<void(size_t index, const float* state)> sees) override;
  void logits_of(std::span<const int> rows,
                 base::FunctionRef<void(size_t first, float* logits, size_t count)> sees) override;
  void head(float* logits, const float* x, int rows) override;
  void labels_of(const float* state, float* logits) override;
  void token_logits_of(const float* state, std::span<const TokenId> tokens, float* logits) override;
  double weight_bytes_of_step(int sequences) const override;
  int64_t owned_weight_bytes() const override;
  int64_t workspace_bytes() const override;

 private:
  Encoder(const families::ModelConfig& config, kernels::Kernels& kernels, const Options& options);

  void embed(const ForwardInput& input);
  // x_ += the rows of a table, of ids_.
  void add_rows(const kernels::Matrix& table, int tokens);

  const families::ModelConfig config_;
  kernels::Kernels& kernels_;
  const Options options_;
  layers::FloatVectors vectors_;
  kernels::Matrix words_;      // (vocab, hidden)
  kernels::Matrix positions_;  // (position rows, hidden)
  kernels::Matrix types_;      // (type rows, hidden)
  layers::LayerNorm norm_;
  std::vector<layers::EncoderLayer> layers_;
  layers::LabelHead labels_;

  // Working memory for one step.
  layers::EncoderWorkspace space_;
  std::vector<float> x_;      // (tokens, hidden)
  std::vector<TokenId> ids_;  // (tokens): rows of a table
};

}  // namespace pelton::models
