// A model on this machine's processors: the forward pass of a ragged step, and what it takes of
// memory. Owned by the executor (or a SequenceRunner's owner); its thread.
#pragma once

#include <memory>
#include <span>

#include "base/function_ref.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "families/model_config.h"
#include "kernels/kernels.h"
#include "layers/rank_part.h"
#include "models/forward.h"
#include "models/kv_storage.h"

namespace pelton::models {

class Model {
 public:
  struct Options {
    int batch_tokens_max = 512;
    int logit_rows_max = 16;
    // Of adapters that steps may bring: the highest rank, 0 for none; and whether on experts.
    int adapter_rank_max = 0;
    bool expert_adapters = false;
    // Of several ranks that compute it together, which part is this one's: every forward() is made
    // by all of them, with the same input. Outlives the model; null: there is one process.
    layers::RankPart* part = nullptr;
  };

  virtual ~Model() = default;

  virtual const families::ModelConfig& config() const = 0;
  virtual const Options& options() const = 0;

  // Returns float (logit_rows, vocab), the caller's to overwrite until the next call; of several
  // ranks, the leader's alone.
  virtual float* forward(const ForwardInput& input, KvStorage& kv, HiddenTap* tap) = 0;

  // The final normed hidden state, float (hidden), of these rows of the last forward(), in order
  // and a few at a time: `sees(i, state)` for rows[i]. Neither head nor logits take part.
  virtual void normed_rows(std::span<const int> rows,
                           base::FunctionRef<void(size_t index, const float* state)> sees) = 0;

  // The logits of these rows of the last forward(), in order and a few at a time, so that a whole
  // prompt's need no room: `sees(first, logits, count)` for rows[first ...], float (count, vocab).
  // They lie where forward() had written its own.
  virtual void logits_of(
      std::span<const int> rows,
      base::FunctionRef<void(size_t first, float* logits, size_t count)> sees) = 0;

  // Its output head, of states that are not the last forward()'s: what drafters make of them.
  // logits: float (rows, vocab); x: float (rows, hidden), normed.
  virtual void head(float* logits, const float* x, int rows) = 0;

  // The logits of the labels (config().label_count) that the model's classification head gives a
  // text, of one of its states as normed_rows gives them: an encoder's first, a decoder's last.
  virtual void labels_of(const float* state, float* logits) = 0;

  // The logits of `tokens` that the output head gives behind such a state.
  virtual void token_logits_of(const float* state, std::span<const TokenId> tokens,
                               float* logits) = 0;

  // Bytes of weights that a step of so many sequences reads, a token and a row of logits each, as
  // experts fall in the mean (the embedding's rows counted as nothing).
  virtual double weight_bytes_of_step(int sequences) const = 0;

  // What it has allocated: small weights as float32, beside the mapped file; and the working memory
  // of a step, its kernels' included.
  virtual int64_t owned_weight_bytes() const = 0;
  virtual int64_t workspace_bytes() const = 0;
};

// The model that the checkpoint's configuration describes. `checkpoint` and `kernels` outlive it.
// Errors: kUnsupported and the checkpoint's, naming the tensor or the key.
Result<std::unique_ptr<Model>> load_model(const checkpoint::Checkpoint& checkpoint,
                                          kernels::Kernels& kernels, const Model::Options& options);

}  // namespace pelton::models
