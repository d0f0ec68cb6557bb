// A pre-norm decoder as its configuration describes it: gpt-oss, Qwen3 and all families whose
// layers are attention and a feed-forward block, each added to the residual stream.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "layers/attention.h"
#include "layers/feed_forward.h"
#include "layers/label_head.h"
#include "layers/output_head.h"
#include "layers/rotary.h"
#include "layers/step_adapters.h"
#include "layers/weights.h"
#include "models/model.h"

namespace pelton::models {

class Transformer final : public Model {
 public:
  static Result<std::unique_ptr<Transformer>> load(const checkpoint::Checkpoint& checkpoint,
                                                   kernels::Kernels& kernels,
                                                   const Options& options);

  const families::ModelConfig& config() const override { return config_; }
  const Options& options() const override { return options_; }
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
  Transformer(const families::ModelConfig& config, kernels::Kernels& kernels,
              const Options& options);

  // The rotary tables' row of a position, for row `row` of the step.
  void turn(int row, int position);
  const float* cos_sin(int layer) const;
  // Tokens to the residual stream.
  void embed(std::span<const TokenId> tokens);
  // Rows of the residual stream, at most logit_rows_max, normed, into head_in_.
  void norm_into_head(std::span<const int> rows);

  const families::ModelConfig config_;
  kernels::Kernels& kernels_;
  const Options options_;
  layers::Rotary rotary_;
  std::optional<layers::Rotary> sliding_rotary_;  // of sliding layers, where theirs is another
  layers::FloatVectors vectors_;
  kernels::Matrix embedding_;    // (vocab, hidden)
  const float* norm_ = nullptr;  // (hidden), in vectors_
  layers::OutputHead head_;
  layers::LabelHead labels_;
  std::vector<std::unique_ptr<layers::Attention>> attention_;
  std::vector<std::unique_ptr<layers::FeedForward>> feed_forward_;

  // Working memory for one step.
  layers::StepAdapters adapters_;
  layers::AttentionWorkspace attention_space_;
  layers::FeedForwardWorkspace feed_forward_space_;
  std::vector<float> x_;                // (tokens, hidden), the residual stream
  std::vector<float> cos_sin_;          // (tokens, rotary size)
  std::vector<float> sliding_cos_sin_;  // the same, if sliding layers turn by another table
  std::vector<float> head_in_;          // (logit_rows, hidden)
  std::vector<float> logits_;           // (logit_rows, vocab)
};

}  // namespace pelton::models
