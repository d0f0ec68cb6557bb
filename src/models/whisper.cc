#include "models/whisper.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/kv_quantization.h"

namespace pelton::models {
namespace {

using Output = kernels::Kernels::Output;

constexpr float kEpsilon = 1e-5f;
constexpr int kBlockTokens = 16;
constexpr int kTaps = 3;  // of either convolution

int block_count(int tokens) {
  return (tokens + kBlockTokens - 1) / kBlockTokens;
}

// Rows of a convolution with three taps and a frame of zeros on either side: row t has in[c][t *
// stride - 1 + k] at c * 3 + k. in: (channels, frames), element (c, t) at c * channel_step + t *
// frame_step.
struct Frames {
  const float* data;
  int channels;
  int frames;
  int64_t channel_step;
  int64_t frame_step;
};
std::vector<float> taps_of(const Frames& in, int stride) {
  const int rows = (in.frames + stride - 1) / stride;
  std::vector<float> out(static_cast<size_t>(rows) * static_cast<size_t>(in.channels) * kTaps);
  size_t at = 0;
  for (int t = 0; t < rows; ++t) {
    for (int c = 0; c < in.channels; ++c) {
      for (int k = 0; k < kTaps; ++k, ++at) {
        const int frame = t * stride - 1 + k;
        if (frame < 0 || frame >= in.frames) continue;
        out[at] = in.data[c * in.channel_step + frame * in.frame_step];
      }
    }
  }
  return out;
}

}  // namespace

void WhisperWindow::rewind(int length) {
  CHECK(length >= 0 && length <= length_);
  length_ = length;
}

void WhisperWindow::take_tokens_of(const WhisperWindow& other) {
  CHECK(cross_ == other.cross_, "of another window's sound");
  length_ = other.length_;
  const size_t count = static_cast<size_t>(block_count(length_)) * block_floats_;
  for (size_t i = 0; i < self_.size(); ++i) {
    std::copy_n(other.self_[i].begin(), count, self_[i].begin());
  }
}

Whisper::Whisper(WhisperConfig config, checkpoint::TensorFile file, kernels::Kernels& kernels)
    : config_(std::move(config)),
      file_(std::move(file)),
      kernels_(kernels),
      block_ids_(static_cast<size_t>(
          block_count(std::max(config_.source_positions, config_.target_positions)))) {
  std::iota(block_ids_.begin(), block_ids_.end(), 0);
}

Result<std::unique_ptr<Whisper>> Whisper::load(const std::string& folder,
                                               kernels::Kernels& kernels) {
  TRY_ASSIGN(WhisperConfig config, read_whisper_config(folder));
  for (const int heads : {config.encoder.heads, config.decoder.heads}) {
    const int size = config.hidden_size / heads;
    if (size <= kernels::kHeadSizeMax) continue;
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}/config.json: heads of {}; the kernels take at most {}", folder,
                             size, kernels::kHeadSizeMax)};
  }
  TRY_ASSIGN(checkpoint::TensorFile file,
             checkpoint::TensorFile::open(folder + "/model.safetensors"));
  std::unique_ptr<Whisper> model(new Whisper(std::move(config), std::move(file), kernels));
  TRY(model->load_all());
  kernels.reserve(
      {.tokens = model->config_.frames(),
       .widest = std::max({kTaps * model->config_.hidden_size, model->config_.encoder.inner,
                           model->config_.decoder.inner})});
  return model;
}

Result<const float*> Whisper::vector(const std::string& name, int size) {
  TRY_ASSIGN(const tensor::TensorView view, file_.tensor(name, std::array<int64_t, 1>{size}));
  return layers::vector_of(view, name, vectors_);
}

Result<layers::LayerNorm> Whisper::norm(const std::string& name) {
  layers::LayerNorm made;
  TRY_ASSIGN(made.weight, vector(name + ".weight", config_.hidden_size));
  TRY_ASSIGN(made.bias, vector(name + ".bias", config_.hidden_size));
  return made;
}

// All dimensions but the first make a row.
Result<kernels::Matrix> Whisper::matrix(const std::string& name, std::vector<int64_t> shape) {
  TRY_ASSIGN(tensor::TensorView view, file_.tensor(name, shape));
  int64_t columns = 1;
  for (size_t i = 1; i < shape.size(); ++i) columns *= shape[i];
  view.shape = {shape[0], columns};
  return layers::matrix_of(view, name);
}

Result<kernels::Linear> Whisper::linear(const std::string& name, int rows, int cols,
                                        layers::Bias bias) {
  kernels::Linear made;
  TRY_ASSIGN(made.weight, matrix(name + ".weight", {rows, cols}));
  if (bias == layers::Bias::kNone) return made;
  TRY_ASSIGN(made.bias, vector(name + ".bias", rows));
  return made;
}

Result<Whisper::Attention> Whisper::attention(const std::string& prefix,
                                              const std::string& norm_name) {
  const int hidden = config_.hidden_size;
  Attention part;
  TRY_ASSIGN(part.norm, norm(norm_name));
  TRY_ASSIGN(part.q, linear(prefix + "q_proj", hidden, hidden, layers::Bias::kAdded));
  TRY_ASSIGN(part.k, linear(prefix + "k_proj", hidden, hidden, layers::Bias::kNone));
  TRY_ASSIGN(part.v, linear(prefix + "v_proj", hidden, hidden, layers::Bias::kAdded));
  TRY_ASSIGN(part.out, linear(prefix + "out_proj", hidden, hidden, layers::Bias::kAdded));
  return part;
}

Result<Whisper::Mlp> Whisper::mlp(const std::string& prefix, int inner) {
  Mlp part;
  TRY_ASSIGN(part.norm, norm(prefix + "final_layer_norm"));
  TRY_ASSIGN(part.up, linear(prefix + "fc1", inner, config_.hidden_size, layers::Bias::kAdded));
  TRY_ASSIGN(part.down, linear(prefix + "fc2", config_.hidden_size, inner, layers::Bias::kAdded));
  return part;
}

Result<void> Whisper::load_all() {
  TRY(load_encoder());
  return load_decoder();
}

Result<void> Whisper::load_encoder() {
  const std::string prefix = "model.encoder.";
  const int hidden = config_.hidden_size;
  TRY_ASSIGN(conv1_.weight, matrix(prefix + "conv1.weight", {hidden, config_.mel_bands, kTaps}));
  TRY_ASSIGN(conv1_.bias, vector(prefix + "conv1.bias", hidden));
  TRY_ASSIGN(conv2_.weight, matrix(prefix + "conv2.weight", {hidden, hidden, kTaps}));
  TRY_ASSIGN(conv2_.bias, vector(prefix + "conv2.bias", hidden));
  TRY_ASSIGN(encoder_positions_,
             matrix(prefix + "embed_positions.weight", {config_.source_positions, hidden}));
  for (int i = 0; i < config_.encoder.layers; ++i) {
    const std::string layer = fmt::format("{}layers.{}.", prefix, i);
    EncoderLayer& made = encoder_.emplace_back();
    TRY_ASSIGN(made.self, attention(layer + "self_attn.", layer + "self_attn_layer_norm"));
    TRY_ASSIGN(made.mlp, mlp(layer, config_.encoder.inner));
  }
  TRY_ASSIGN(encoder_norm_, norm(prefix + "layer_norm"));
  return {};
}

Result<void> Whisper::load_decoder() {
  const std::string prefix = "model.decoder.";
  const int hidden = config_.hidden_size;
  TRY_ASSIGN(words_, matrix(prefix + "embed_tokens.weight", {config_.vocab_size, hidden}));
  TRY_ASSIGN(decoder_positions_,
             matrix(prefix + "embed_positions.weight", {config_.target_positions, hidden}));
  for (int i = 0; i < config_.decoder.layers; ++i) {
    const std::string layer = fmt::format("{}layers.{}.", prefix, i);
    DecoderLayer& made = decoder_.emplace_back();
    TRY_ASSIGN(made.self, attention(layer + "self_attn.", layer + "self_attn_layer_norm"));
    TRY_ASSIGN(made.cross, attention(layer + "encoder_attn.", layer + "encoder_attn_layer_norm"));
    TRY_ASSIGN(made.mlp, mlp(layer, config_.decoder.inner));
  }
  TRY_ASSIGN(decoder_norm_, norm(prefix + "layer_norm"));
  return {};
}

kernels::KvLayer Whisper::blocks_of(std::vector<float>& memory, int heads) const {
  return {.data = memory.data(),
          .dtype = tensor::DType::kF32,
          .block_tokens = kBlockTokens,
          .kv_heads = heads,
          .head_size = config_.hidden_size / heads};
}

void Whisper::attend(const Attention& part, std::vector<float>& x, int heads,
                     std::span<const Keys> keys, Own own) {
  const int hidden = config_.hidden_size;
  const size_t count = x.size();
  const int tokens = static_cast<int>(count / static_cast<size_t>(hidden));
  normed_.resize(count);
  qkv_.resize(3 * count);
  mixed_.resize(count);
  float* const q = qkv_.data();
  kernels_.layer_norm(normed_.data(), x.data(), part.norm.weight, part.norm.bias, tokens, hidden,
                      kEpsilon);
  kernels_.linear(q, normed_.data(), part.q, tokens, Output::kOverwrite);
  if (own == Own::kStored) {
    kernels_.linear(q + count, normed_.data(), part.k, tokens, Output::kOverwrite);
    kernels_.linear(q + 2 * count, normed_.data(), part.v, tokens, Output::kOverwrite);
  }
  const int head_size = hidden / heads;
  const kernels::AttentionShape shape{
      .heads = heads,
      .kv_heads = heads,
      .head_size = head_size,
      .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_size)))};
  size_t at = 0;  // of a window's rows
  for (const Keys& of_one : keys) {
    const kernels::KvLayer blocks = blocks_of(of_one.blocks, heads);
    const kernels::SequenceRows rows{.row_begin = 0,
                                     .row_count = of_one.row_count,
                                     .start = of_one.start,
                                     .blocks = block_ids_.data(),
                                     .key_count = of_one.key_count};
    if (own == Own::kStored) {
      kernels_.store_kv(blocks, q + count + at, q + 2 * count + at, hidden, &rows, 1);
    }
    kernels_.attention(mixed_.data() + at, q + at, hidden, blocks, shape, &rows, 1);
    at += static_cast<size_t>(of_one.row_count) * static_cast<size_t>(hidden);
  }
  kernels_.linear(x.data(), mixed_.data(), part.out, tokens, Output::kAccumulate);
}

void Whisper::feed_forward(const Mlp& part, std::vector<float>& x, int tokens) {
  const int hidden = config_.hidden_size;
  const int64_t inner = int64_t{tokens} * part.up.weight.rows;
  normed_.resize(static_cast<size_t>(tokens) * static_cast<size_t>(hidden));
  inner_.resize(static_cast<size_t>(inner));
  kernels_.layer_norm(normed_.data(), x.data(), part.norm.weight, part.norm.bias, tokens, hidden,
                      kEpsilon);
  kernels_.linear(inner_.data(), normed_.data(), part.up, tokens, Output::kOverwrite);
  kernels_.activate(inner_.data(), inner, kernels::ActivationKind::kGelu);
  kernels_.linear(x.data(), inner_.data(), part.down, tokens, Output::kAccumulate);
}

std::vector<float> Whisper::encode(std::span<const float> mel) {
  const int frames = config_.frames();
  const int hidden = config_.hidden_size;
  const int positions = config_.source_positions;
  CHECK(mel.size() == static_cast<size_t>(config_.mel_bands) * static_cast<size_t>(frames));

  const std::vector<float> first_taps =
      taps_of({mel.data(), config_.mel_bands, frames, frames, 1}, 1);
  std::vector<float> first(static_cast<size_t>(frames) * static_cast<size_t>(hidden));
  kernels_.linear(first.data(), first_taps.data(), conv1_, frames, Output::kOverwrite);
  kernels_.activate(first.data(), static_cast<int64_t>(first.size()),
                    kernels::ActivationKind::kGelu);
  const std::vector<float> second_taps = taps_of({first.data(), hidden, frames, 1, hidden}, 2);
  std::vector<float> x(static_cast<size_t>(positions) * static_cast<size_t>(hidden));
  kernels_.linear(x.data(), second_taps.data(), conv2_, positions, Output::kOverwrite);
  kernels_.activate(x.data(), static_cast<int64_t>(x.size()), kernels::ActivationKind::kGelu);

  std::vector<TokenId> rows(static_cast<size_t>(positions));
  std::iota(rows.begin(), rows.end(), 0);
  mixed_.resize(x.size());
  kernels_.embed(mixed_.data(), rows.data(), positions, encoder_positions_);
  for (size_t i = 0; i < x.size(); ++i) x[i] += mixed_[i];

  std::vector<float> blocks(static_cast<size_t>(block_count(positions)) * 2 * kBlockTokens *
                            static_cast<size_t>(hidden));
  for (const EncoderLayer& layer : encoder_) {
    if (between_) between_();
    const Keys keys{.blocks = blocks, .row_count = positions, .key_count = positions};
    attend(layer.self, x, config_.encoder.heads, {&keys, 1}, Own::kStored);
    feed_forward(layer.mlp, x, positions);
  }
  kernels_.layer_norm(x.data(), x.data(), encoder_norm_.weight, encoder_norm_.bias, positions,
                      hidden, kEpsilon);
  return x;
}

WhisperWindow Whisper::window(std::span<const float> states) {
  const int hidden = config_.hidden_size;
  const int positions = config_.source_positions;
  const size_t count = static_cast<size_t>(positions) * static_cast<size_t>(hidden);
  CHECK(states.size() == count);
  WhisperWindow made;
  made.block_floats_ = size_t{2} * kBlockTokens * static_cast<size_t>(hidden);
  made.cross_ = std::make_shared<WhisperWindow::Layers>();
  qkv_.resize(2 * count);
  const auto blocks_for = [&](int tokens) {
    return std::vector<float>(static_cast<size_t>(block_count(tokens)) * 2 * kBlockTokens *
                              static_cast<size_t>(hidden));
  };
  const kernels::SequenceRows rows{
      .row_begin = 0, .row_count = positions, .start = 0, .blocks = block_ids_.data()};
  for (const DecoderLayer& layer : decoder_) {
    if (between_) between_();
    kernels_.linear(qkv_.data(), states.data(), layer.cross.k, positions, Output::kOverwrite);
    kernels_.linear(qkv_.data() + count, states.data(), layer.cross.v, positions,
                    Output::kOverwrite);
    std::vector<float>& cross = made.cross_->emplace_back(blocks_for(positions));
    kernels_.store_kv(blocks_of(cross, config_.decoder.heads), qkv_.data(), qkv_.data() + count,
                      hidden, &rows, 1);
    made.self_.push_back(blocks_for(config_.target_positions));
  }
  return made;
}

std::span<const float> Whisper::step(WhisperWindow& window, std::span<const TokenId> tokens) {
  WhisperWindow* const one = &window;
  return run({&one, 1}, tokens, {});
}

std::span<const float> Whisper::step_each(std::span<WhisperWindow* const> windows,
                                          std::span<const TokenId> tokens) {
  CHECK(windows.size() == tokens.size());
  return run(windows, tokens, {});
}

void Whisper::look(const std::vector<float>& blocks, int head, int tokens, int positions,
                   float* weights) const {
  const int hidden = config_.hidden_size;
  const int head_size = hidden / config_.decoder.heads;
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_size));
  const size_t block_floats = size_t{2} * kBlockTokens * static_cast<size_t>(hidden);
  for (int t = 0; t < tokens; ++t) {
    const float* const q = qkv_.data() + int64_t{t} * hidden + int64_t{head} * head_size;
    float* const row = weights + int64_t{t} * positions;
    float highest = -std::numeric_limits<float>::infinity();
    for (int p = 0; p < positions; ++p) {
      // Of each head: keys transposed (head_size, kBlockTokens), then values.
      const float* const key =
          blocks.data() + static_cast<size_t>(p / kBlockTokens) * block_floats +
          size_t{2} * kBlockTokens * static_cast<size_t>(head * head_size) + p % kBlockTokens;
      double sum = 0.0;
      for (int d = 0; d < head_size; ++d) sum += double{q[d]} * key[d * kBlockTokens];
      row[p] = static_cast<float>(sum * scale);
      highest = std::max(highest, row[p]);
    }
    double all = 0.0;
    for (int p = 0; p < positions; ++p) all += std::exp(double{row[p]} - highest);
    for (int p = 0; p < positions; ++p) {
      row[p] = static_cast<float>(std::exp(double{row[p]} - highest) / all);
    }
  }
}

Whisper::Looks Whisper::step_looking(WhisperWindow& window, std::span<const TokenId> tokens,
                                     std::span<const WhisperConfig::Head> heads, int positions) {
  CHECK(positions > 0 && positions <= config_.source_positions);
  const size_t one = tokens.size() * static_cast<size_t>(positions);
  Looks looks{.weights = std::vector<float>(heads.size() * one), .logits = {}};
  WhisperWindow* const one_window = &window;
  looks.logits = run({&one_window, 1}, tokens, [&](int layer) {
    for (size_t i = 0; i < heads.size(); ++i) {
      if (heads[i].layer != layer) continue;
      look((*window.cross_)[static_cast<size_t>(layer)], heads[i].head,
           static_cast<int>(tokens.size()), positions, looks.weights.data() + i * one);
    }
  });
  return looks;
}

std::span<const float> Whisper::run(std::span<WhisperWindow* const> windows,
                                    std::span<const TokenId> tokens,
                                    const std::function<void(int layer)>& after_cross) {
  if (between_) between_();
  CHECK(!windows.empty() && tokens.size() % windows.size() == 0);
  const int count = static_cast<int>(tokens.size());
  const int each = count / static_cast<int>(windows.size());
  const int hidden = config_.hidden_size;
  std::vector<float> x(static_cast<size_t>(count) * static_cast<size_t>(hidden));
  kernels_.embed(x.data(), tokens.data(), count, words_);
  std::vector<TokenId> rows;
  for (const WhisperWindow* window : windows) {
    CHECK(each > 0 && window->length_ + each <= config_.target_positions);
    for (int i = 0; i < each; ++i) rows.push_back(window->length_ + i);
  }
  mixed_.resize(x.size());
  kernels_.embed(mixed_.data(), rows.data(), count, decoder_positions_);
  for (size_t i = 0; i < x.size(); ++i) x[i] += mixed_[i];

  std::vector<Keys> keys;
  for (size_t i = 0; i < decoder_.size(); ++i) {
    const DecoderLayer& layer = decoder_[i];
    keys.clear();
    for (WhisperWindow* const window : windows) {
      keys.push_back({.blocks = window->self_[i], .row_count = each, .start = window->length_});
    }
    attend(layer.self, x, config_.decoder.heads, keys, Own::kStored);
    keys.clear();
    for (WhisperWindow* const window : windows) {
      keys.push_back({.blocks = (*window->cross_)[i],
                      .row_count = each,
                      .key_count = config_.source_positions});
    }
    attend(layer.cross, x, config_.decoder.heads, keys, Own::kNone);
    if (after_cross) after_cross(static_cast<int>(i));
    feed_forward(layer.mlp, x, count);
  }
  for (WhisperWindow* const window : windows) window->length_ += each;
  kernels_.layer_norm(x.data(), x.data(), decoder_norm_.weight, decoder_norm_.bias, count, hidden,
                      kEpsilon);
  logits_.resize(static_cast<size_t>(count) * static_cast<size_t>(config_.vocab_size));
  kernels_.linear(logits_.data(), x.data(), {.weight = words_}, count, Output::kOverwrite);
  return logits_;
}

}  // namespace pelton::models
