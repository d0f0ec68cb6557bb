// Whisper (arXiv 2212.04356): an encoder over a window of 30 s of sound, and a decoder that attends
// to its states. The keys and values of the encoder's states are computed once for each window. One
// thread; weights stay mapped.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "checkpoint/tensor_file.h"
#include "kernels/kernels.h"
#include "layers/encoder_layer.h"
#include "layers/weights.h"
#include "models/whisper_config.h"

namespace pelton::models {

// One window while it is decoded: keys and values of the encoder's states, and of the tokens so
// far. Made by Whisper::window. A copy is another text of the same sound: the encoder's are shared.
class WhisperWindow {
 public:
  int length() const { return length_; }
  // Tokens from `length` on are forgotten.
  void rewind(int length);
  // The tokens are those of `other` from now on, which is of the same sound.
  void take_tokens_of(const WhisperWindow& other);

 private:
  friend class Whisper;
  using Layers = std::vector<std::vector<float>>;  // by layer: blocks of keys and values
  int length_ = 0;
  size_t block_floats_ = 0;
  std::shared_ptr<Layers> cross_;  // of the encoder's states
  Layers self_;                    // of the tokens
};

class Whisper {
 public:
  // Of a folder with config.json, generation_config.json and model.safetensors. `kernels` outlives
  // it. Errors name file, key or tensor.
  static Result<std::unique_ptr<Whisper>> load(const std::string& folder,
                                               kernels::Kernels& kernels);

  const WhisperConfig& config() const { return config_; }
  // Of the files' tensors, mapped; and at most of everything that is allocated for a window.
  int64_t weight_bytes() const { return file_.weight_bytes(); }
  int64_t workspace_bytes() const { return config_.workspace_bytes(); }
  // Called between the layers of an encoder's pass, which takes long, and before each step; may be
  // empty. Others may use the threads meanwhile.
  void set_between(std::function<void()> between) { between_ = std::move(between); }

  // mel: float (bands, frames()), as audio::LogMel gives it. Returns float (source_positions,
  // hidden), normed.
  std::vector<float> encode(std::span<const float> mel);
  WhisperWindow window(std::span<const float> states);

  // Appends tokens: at most target_positions in all. float (tokens, vocab), until the next call.
  std::span<const float> step(WhisperWindow& window, std::span<const TokenId> tokens);
  // One token in each of several windows: float (windows, vocab), until the next call; each row as
  // step() has it.
  std::span<const float> step_each(std::span<WhisperWindow* const> windows,
                                   std::span<const TokenId> tokens);
  // As step(), and how much of each token's look at the sound falls on each of its first
  // `positions` states, by these heads: softmax over those, float (heads, tokens, positions).
  struct Looks {
    std::vector<float> weights;
    std::span<const float> logits;
  };
  Looks step_looking(WhisperWindow& window, std::span<const TokenId> tokens,
                     std::span<const WhisperConfig::Head> heads, int positions);

 private:
  struct Attention {
    layers::LayerNorm norm;
    kernels::Linear q, k, v, out;
  };
  struct Mlp {
    layers::LayerNorm norm;
    kernels::Linear up, down;
  };
  struct EncoderLayer {
    Attention self;
    Mlp mlp;
  };
  struct DecoderLayer {
    Attention self;
    Attention cross;
    Mlp mlp;
  };

  Whisper(WhisperConfig config, checkpoint::TensorFile file, kernels::Kernels& kernels);
  Result<void> load_all();
  Result<void> load_encoder();
  Result<void> load_decoder();
  Result<const float*> vector(const std::string& name, int size);
  Result<layers::LayerNorm> norm(const std::string& name);
  Result<kernels::Matrix> matrix(const std::string& name, std::vector<int64_t> shape);
  Result<kernels::Linear> linear(const std::string& name, int rows, int cols, layers::Bias bias);
  Result<Attention> attention(const std::string& prefix, const std::string& norm_name);
  Result<Mlp> mlp(const std::string& prefix, int inner);

  // x += attention(norm(x)), of `row_count` rows each over the keys that lie in `blocks`; kStored:
  // those of x itself are put there first, from position `start` on.
  struct Keys {
    std::vector<float>& blocks;
    int row_count = 0;
    int start = 0;
    int key_count = 0;  // 0: causal
  };
  enum class Own { kStored, kNone };
  void attend(const Attention& part, std::vector<float>& x, int heads, std::span<const Keys> keys,
              Own own);
  // What one head of the queries in qkv_ sees of `blocks`: (tokens, positions).
  void look(const std::vector<float>& blocks, int head, int tokens, int positions,
            float* weights) const;
  // The same number of tokens in each window, one window's behind the other's.
  std::span<const float> run(std::span<WhisperWindow* const> windows,
                             std::span<const TokenId> tokens,
                             const std::function<void(int layer)>& after_cross);
  void feed_forward(const Mlp& part, std::vector<float>& x, int tokens);
  kernels::KvLayer blocks_of(std::vector<float>& memory, int heads) const;

  const WhisperConfig config_;
  checkpoint::TensorFile file_;
  kernels::Kernels& kernels_;
  layers::FloatVectors vectors_;
  kernels::Linear conv1_;  // (hidden, bands * 3)
  kernels::Linear conv2_;  // (hidden, hidden * 3)
  kernels::Matrix encoder_positions_;
  std::vector<EncoderLayer> encoder_;
  layers::LayerNorm encoder_norm_;
  kernels::Matrix words_;
  kernels::Matrix decoder_positions_;
  std::vector<DecoderLayer> decoder_;
  layers::LayerNorm decoder_norm_;

  std::function<void()> between_;
  std::vector<int32_t> block_ids_;  // 0, 1, 2, ...
  std::vector<float> normed_, qkv_, mixed_, inner_, logits_;
};

}  // namespace pelton::models
