// The arithmetic of Medusa heads (Cai et al. 2024, arXiv 2401.10774): from the target's state of a
// token to guesses of the tokens behind the next one, each head by itself:
//
//   s = h, the normed state of token p that the target's own output head reads
//   s += silu(W s + b)         for each residual block of head i
//   logits = lm_head s         of token p + 2 + i
//
// Token p + 1 is what the target samples from h itself. Worked example, tokens a b c known, the
// target has computed a and b: of b's state its own head gave c, head 0 guesses d, head 1 what
// follows d, whatever d is.
//
// Immutable after loading, but for its working memory. Executor thread.
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/tensor_file.h"
#include "kernels/kernels.h"
#include "layers/weights.h"
#include "speculative/medusa_config.h"

namespace pelton::speculative {

// The target's output head. logits: float (rows, vocab); x: float (rows, hidden), normed.
using TargetHead = std::function<void(float* logits, const float* x, int rows)>;

class MedusaHeads {
 public:
  // Rows of logits of one pass: of each state one for each head.
  static constexpr int kRowsMax = 64;

  // `folder`: config.json and model.safetensors or medusa_lm_head.safetensors, with
  // FasterDecoding's names ({head}.{block}.linear.weight) or vLLM's
  // (blocks.{head}.layers.{block}.weight). `kernels` outlive it, their working memory becomes these
  // heads'. target_head: of heads without their own. Errors: those of the files; kInvalidArgument
  // for heads of another model.
  static Result<MedusaHeads> load(const std::string& folder, const checkpoint::Checkpoint& target,
                                  TargetHead target_head, kernels::Kernels& kernels);

  // Whether the folder's config.json is that of such heads; how many there are. Errors: those of
  // the file.
  static Result<bool> is_in(const std::string& folder);
  static Result<int> count_in(const std::string& folder);
  static Result<int> draft_vocab_in(const std::string& folder, const families::ModelConfig& target);

  const MedusaConfig& config() const { return config_; }
  int count() const { return config_.heads; }
  int draft_vocab() const { return config_.draft_vocab_size; }
  // Whether ids of the draft vocabulary are others than the target's.
  bool has_own_ids() const { return !draft_to_target_.empty(); }
  // The target's id of a token of the draft vocabulary.
  TokenId target_id(int draft_id) const {
    return draft_to_target_.empty() ? draft_id : draft_to_target_[static_cast<size_t>(draft_id)];
  }

  // What the target's last layer left, made what its output head reads. x: float (rows, hidden),
  // in place.
  void norm(float* x, int rows);

  // Logits of the first `heads` heads of these states: float (heads, states, draft vocabulary), the
  // caller's to overwrite until the next call; heads * states is at most kRowsMax. states: float
  // (states, hidden), normed.
  float* forward(const float* states, int count, int heads);

  int64_t weight_bytes() const;
  int64_t workspace_bytes() const;
  // The same before anything is loaded.
  struct Bytes {
    int64_t weights = 0;
    int64_t workspace = 0;
  };
  // is_reference: the reference kernels keep nothing.
  static Result<Bytes> bytes_for(const std::string& folder, const families::ModelConfig& target,
                                 bool is_reference);

 private:
  MedusaHeads(const MedusaConfig& config, checkpoint::TensorFile file, TargetHead target_head,
              kernels::Kernels& kernels);

  static Result<MedusaConfig> read_config(const std::string& folder,
                                          const families::ModelConfig& target);
  static Result<checkpoint::TensorFile> open_file(const std::string& folder,
                                                  const MedusaConfig& config);
  Result<void> load_weights(const checkpoint::Checkpoint& target);
  Result<void> load_ids();
  Result<void> check_all_read() const;
  Result<kernels::Matrix> matrix(const std::string& name, int rows, int cols);
  Result<kernels::Linear> block(int head, int index);
  std::string output_name(int head) const;

  MedusaConfig config_;
  double rms_norm_epsilon_ = 0;  // the target's
  checkpoint::TensorFile file_;
  TargetHead target_head_;
  kernels::Kernels* kernels_;
  layers::FloatVectors vectors_;
  const float* norm_ = nullptr;              // (hidden): the target's last
  std::vector<kernels::Linear> blocks_;      // (heads, blocks)
  std::vector<kernels::Linear> outputs_;     // (heads), one of all, or none: the target's
  std::vector<TokenId> draft_to_target_;     // empty: the same ids
  std::set<std::string, std::less<>> read_;  // tensors of the file that are computed with

  // Working memory.
  std::vector<float> states_;  // (kRowsMax, hidden)
  std::vector<float> gates_;   // likewise: W s + b of one head
  std::vector<float> ones_;    // likewise: what a gated unit makes silu of
  std::vector<float> logits_;  // (kRowsMax, draft vocabulary)
};

}  // namespace pelton::speculative
