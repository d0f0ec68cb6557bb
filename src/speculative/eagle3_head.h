// The arithmetic of an EAGLE-3 head (Li et al. 2025, arXiv 2503.01840): from what the target's
// layers hold of a token to guesses of the tokens behind it. One decoder layer, whose slot s holds
// the pair (feature of token s - 1, token s), so that it depends on the tokens up to s alone:
//
//   g = fc [tap 1; tap 2; tap 3]                       the feature of a token that the target
//   computed x = [input_layernorm(embedding of token s); hidden_norm(g of s - 1)] y = g + o_proj
//   attention(x) ;  y += mlp(post_attention_layernorm(y)) logits = lm_head norm(y) of token s + 1,
//   over the draft vocabulary
//
// and y is the feature that slot s + 1 begins with as long as nothing better is known: so guess
// follows guess. Worked example, tokens a b c known, the target has computed a and b: slots 1 and 2
// hold (g of a, b) and (g of b, c); slot 2's logits guess d, slot 3 is (y of slot 2, d).
//
// Immutable after loading, but for its working memory. Executor thread.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/tensor_file.h"
#include "kernels/kernels.h"
#include "layers/rotary.h"
#include "layers/weights.h"
#include "speculative/eagle3_config.h"

namespace pelton::speculative {

class Eagle3Head {
 public:
  // Rows of one pass; more are cut.
  static constexpr int kRowsMax = 64;

  // `folder`: config.json and model.safetensors, of the published layout (`midlayer.` or
  // `layers.0.`). `target` and `kernels` outlive it; the kernels' working memory becomes this
  // head's. Errors: those of the files; kInvalidArgument for a head of another model.
  static Result<Eagle3Head> load(const std::string& folder, const checkpoint::Checkpoint& target,
                                 kernels::Kernels& kernels);

  // Whether the folder's config.json is that of such a head. Errors: those of the file.
  static Result<bool> is_in(const std::string& folder);
  // Errors: those of the file; what parse_eagle3_config refuses.
  static Result<Eagle3Config> read_config(const std::string& folder,
                                          const families::ModelConfig& target);

  const Eagle3Config& config() const { return config_; }
  int hidden() const { return config_.layer.hidden_size; }
  int draft_vocab() const { return config_.draft_vocab_size; }
  // The target's id of a token of the draft vocabulary.
  TokenId target_id(int draft_id) const {
    return draft_to_target_.empty() ? draft_id : draft_to_target_[static_cast<size_t>(draft_id)];
  }

  // g of rows that the target has computed. out: float (rows, hidden); taps: float (rows, 3 *
  // hidden), overwritten.
  void combine(float* out, float* taps, int rows);

  // A slot of some sequence.
  struct Row {
    TokenId token = 0;
    const float* feature = nullptr;   // (hidden): g, or y of the slot before
    int position = 0;                 // that keys and queries are rotated by
    int place = 0;                    // among the slots that are kept; it sees all before it
    const int32_t* blocks = nullptr;  // of the sequence, by place / block_tokens
  };
  // Keys and values of these slots, and nothing else: what later ones look back at.
  void remember(std::span<const Row> rows, const kernels::KvLayer& cache);

  // The slots' logits, float (rows, draft vocabulary), the caller's to overwrite until the next
  // call, and what the slots behind them begin with; at most kRowsMax, all of different sequences.
  // next: float (rows, hidden), may be where the rows' features are.
  float* forward(std::span<const Row> rows, const kernels::KvLayer& cache, float* next);

  int64_t weight_bytes() const { return file_.weight_bytes() + vectors_.bytes() + ids_bytes(); }
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
  Eagle3Head(Eagle3Config config, checkpoint::TensorFile file, kernels::Kernels& kernels);

  static Result<checkpoint::TensorFile> open_file(const std::string& folder);
  Result<void> load_weights(const checkpoint::Checkpoint& target);
  Result<void> load_ids();
  Result<void> check_all_read() const;
  Result<kernels::Linear> linear(const std::string& name, int rows, int cols, bool has_bias);
  Result<const float*> vector(const std::string& name, int count);
  int64_t ids_bytes() const {
    return static_cast<int64_t>(draft_to_target_.size() * sizeof(TokenId));
  }
  // Into pair_, keys_ and values_, and the cache.
  void begin_rows(std::span<const Row> rows, const kernels::KvLayer& cache);

  Eagle3Config config_;
  checkpoint::TensorFile file_;
  kernels::Kernels* kernels_;
  layers::Rotary rotary_;
  layers::FloatVectors vectors_;
  kernels::Matrix embedding_;  // (target's vocabulary, hidden): its own, or the target's
  kernels::Linear fc_, q_, k_, v_, o_, gate_, up_, down_, lm_head_;
  const float* input_layernorm_ = nullptr;
  const float* hidden_norm_ = nullptr;
  const float* post_norm_ = nullptr;
  const float* norm_ = nullptr;
  const float* input_norm_ = nullptr;        // (3 * hidden), of norm_before_fc
  const float* fc_norms_[kEagle3Taps] = {};  // (hidden), of fc_norm
  std::vector<TokenId> draft_to_target_;     // empty: the same ids
  std::set<std::string, std::less<>> read_;  // tensors of the file that are computed with

  // Working memory, of kRowsMax rows.
  std::vector<kernels::SequenceRows> sequences_;
  std::vector<TokenId> tokens_;
  std::vector<float> embedded_;  // (rows, hidden)
  std::vector<float> pair_;      // (rows, 2 * hidden)
  std::vector<float> cos_sin_;   // (rows, head_size)
  std::vector<float> queries_, keys_, values_;
  std::vector<float> mixed_;        // (rows, heads * head_size)
  std::vector<float> state_;        // (rows, hidden): y
  std::vector<float> normed_;       // (rows, hidden)
  std::vector<float> gates_, ups_;  // (rows, intermediate_size)
  std::vector<float> logits_;       // (rows, draft vocabulary)
};

}  // namespace pelton::speculative
