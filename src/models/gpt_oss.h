// gpt-oss (20b, 120b and anything of that shape): pre-norm transformer, alternating window and full
// attention with sinks, YaRN, biased top-k router, MXFP4 experts with clamped SwiGLU. Exact facts
// and sources: docs/formats/gpt_oss.md. Owned by the executor; its thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"
#include "layers/attention_block.h"
#include "layers/expert_block.h"
#include "layers/output_head.h"
#include "layers/rotary.h"
#include "layers/weights.h"
#include "models/kv_storage.h"

namespace pelton::models {

// One step, flat: the tokens of all sequences one after the other.
struct ForwardInput {
  struct Sequence {
    int start = 0;                         // position of its first row
    int count = 0;                         // rows
    const int32_t* full_blocks = nullptr;  // tables by position / block_tokens
    const int32_t* window_blocks = nullptr;
  };
  std::vector<TokenId> tokens;
  std::vector<Sequence> sequences;
  std::vector<int> logit_rows;  // rows (indices into tokens) whose logits are wanted
};

// Sees the residual stream: index 0 after the embedding, then after each attention and each expert
// block; x: float (tokens, hidden).
using HiddenTap = base::FunctionRef<void(int index, const float* x, int tokens)>;

class GptOss {
 public:
  struct Options {
    int batch_tokens_max = 512;
    int logit_rows_max = 16;
  };

  // `checkpoint` and `kernels` outlive the model. Errors name the tensor.
  static Result<std::unique_ptr<GptOss>> load(const checkpoint::Checkpoint& checkpoint,
                                              kernels::Kernels& kernels, const Options& options);

  const checkpoint::ModelConfig& config() const { return config_; }
  const Options& options() const { return options_; }

  // Returns float (logit_rows, vocab), the caller's to overwrite until the next call.
  float* forward(const ForwardInput& input, KvStorage& kv, HiddenTap* tap);

  // The final normed hidden state, float (hidden), of these rows of the last forward(), in order
  // and a few at a time: `sees(i, state)` for rows[i]. Neither head nor logits take part.
  void normed_rows(std::span<const int> rows,
                   base::FunctionRef<void(size_t index, const float* state)> sees);

  // The logits of these rows of the last forward(), in order and a few at a time, so that a whole
  // prompt's need no room: `sees(first, logits, count)` for rows[first ...], float (count, vocab).
  // They lie where forward() had written its own.
  void logits_of(std::span<const int> rows,
                 base::FunctionRef<void(size_t first, float* logits, size_t count)> sees);

  // Bytes of weights that a step of so many sequences reads, a token and a row of logits each, as
  // experts fall in the mean (the embedding's rows counted as nothing).
  double weight_bytes_of_step(int sequences) const;

  // What it has allocated: small weights as float32, beside the mapped file; and the working memory
  // of a step, its kernels' included.
  int64_t owned_weight_bytes() const;
  int64_t workspace_bytes() const;

 private:
  GptOss(const checkpoint::ModelConfig& config, kernels::Kernels& kernels, const Options& options);

  // Rows of the residual stream, at most logit_rows_max, normed, into head_in_.
  void norm_into_head(std::span<const int> rows);

  const checkpoint::ModelConfig config_;
  kernels::Kernels& kernels_;
  const Options options_;
  layers::Rotary rotary_;
  layers::FloatVectors vectors_;
  kernels::Matrix embedding_;    // (vocab, hidden)
  const float* norm_ = nullptr;  // (hidden), in vectors_
  layers::OutputHead head_;
  std::vector<layers::AttentionBlock> attention_;
  std::vector<layers::ExpertBlock> experts_;

  // Working memory for one step.
  layers::AttentionWorkspace attention_space_;
  layers::ExpertWorkspace expert_space_;
  std::vector<float> x_;        // (tokens, hidden), the residual stream
  std::vector<float> cos_sin_;  // (tokens, head_size)
  std::vector<float> head_in_;  // (logit_rows, hidden)
  std::vector<float> logits_;   // (logit_rows, vocab)
};

}  // namespace pelton::models
