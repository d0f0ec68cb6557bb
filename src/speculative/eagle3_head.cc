#include "speculative/eagle3_head.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/file.h"
#include "checkpoint/foreign_text.h"

namespace pelton::speculative {
namespace {

using Output = kernels::Kernels::Output;

constexpr const char* kLayer = "midlayer.";

std::string config_file(const std::string& folder) {
  return folder + "/config.json";
}

Result<Json> read_json(const std::string& path) {
  constexpr size_t kBytesMax = size_t{1} << 20;
  TRY_ASSIGN(const std::string text, base::read_file(path, kBytesMax));
  Result<Json> json = Json::parse(text);
  if (json.ok()) return json;
  return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: {}", path, json.error().message)};
}

// Floats of working memory that a row takes, in the order of the members.
int64_t row_floats(const Eagle3Config& config) {
  const families::ModelConfig& layer = config.layer;
  return int64_t{5} * layer.hidden_size + layer.head_size + 2 * layer.q_size() +
         2 * layer.kv_size() + 2 * int64_t{layer.intermediate_size} + config.draft_vocab_size;
}

constexpr int64_t kRowBytes = sizeof(kernels::SequenceRows) + sizeof(TokenId);

// What kernels without experts keep of a step (cost_model/footprint.cc): of each row a pointer and
// its sequence, and one counter.
constexpr int64_t kKernelBytes = Eagle3Head::kRowsMax * 12 + 4;

}  // namespace

Eagle3Head::Eagle3Head(Eagle3Config config, checkpoint::TensorFile file, kernels::Kernels& kernels)
    : config_(std::move(config)),
      file_(std::move(file)),
      kernels_(&kernels),
      rotary_(config_.layer.rope, config_.layer.head_size) {
  const families::ModelConfig& layer = config_.layer;
  const auto rows = [](int64_t width) { return static_cast<size_t>(kRowsMax * width); };
  kernels_->reserve({.tokens = kRowsMax});
  sequences_.reserve(kRowsMax);
  tokens_.reserve(kRowsMax);
  embedded_.resize(rows(layer.hidden_size));
  pair_.resize(rows(2 * int64_t{layer.hidden_size}));
  cos_sin_.resize(rows(layer.head_size));
  queries_.resize(rows(layer.q_size()));
  keys_.resize(rows(layer.kv_size()));
  values_.resize(rows(layer.kv_size()));
  mixed_.resize(rows(layer.q_size()));
  state_.resize(rows(layer.hidden_size));
  normed_.resize(rows(layer.hidden_size));
  gates_.resize(rows(layer.intermediate_size));
  ups_.resize(rows(layer.intermediate_size));
  logits_.resize(rows(config_.draft_vocab_size));
}

Result<Eagle3Config> Eagle3Head::read_config(const std::string& folder,
                                             const families::ModelConfig& target) {
  TRY_ASSIGN(const Json json, read_json(config_file(folder)));
  return parse_eagle3_config(json, target, config_file(folder));
}

Result<bool> Eagle3Head::is_in(const std::string& folder) {
  TRY_ASSIGN(const Json json, read_json(config_file(folder)));
  return is_eagle3_config(json);
}

Result<checkpoint::TensorFile> Eagle3Head::open_file(const std::string& folder) {
  TRY_ASSIGN(checkpoint::TensorFile file,
             checkpoint::TensorFile::open(folder + "/model.safetensors"));
  TRY(file.rename("layers.0.", kLayer));
  return file;
}

Result<Eagle3Head> Eagle3Head::load(const std::string& folder, const checkpoint::Checkpoint& target,
                                    kernels::Kernels& kernels) {
  TRY_ASSIGN(Eagle3Config config, read_config(folder, target.config()));
  TRY_ASSIGN(checkpoint::TensorFile file, open_file(folder));
  Eagle3Head head(std::move(config), std::move(file), kernels);
  TRY(head.load_weights(target));
  TRY(head.load_ids());
  TRY(head.check_all_read());
  return head;
}

// A tensor that nothing reads would be a head of another kind.
Result<void> Eagle3Head::check_all_read() const {
  for (const auto& [name, view] : file_.tensors()) {
    if (read_.contains(name) || name == "t2d") continue;  // t2d: d2t the other way round
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: tensor {} is none that an EAGLE-3 head of this config.json has",
                             file_.path(), checkpoint::shown(name))};
  }
  return {};
}

Result<kernels::Linear> Eagle3Head::linear(const std::string& name, int rows, int cols,
                                           bool has_bias) {
  TRY_ASSIGN(const tensor::TensorView view,
             file_.tensor(name + ".weight", std::array<int64_t, 2>{rows, cols}));
  kernels::Linear linear;
  TRY_ASSIGN(linear.weight, layers::matrix_of(view, name + ".weight"));
  read_.insert(name + ".weight");
  if (!has_bias) return linear;
  TRY_ASSIGN(linear.bias, vector(name + ".bias", rows));
  return linear;
}

Result<const float*> Eagle3Head::vector(const std::string& name, int count) {
  TRY_ASSIGN(const tensor::TensorView view, file_.tensor(name, std::array<int64_t, 1>{count}));
  read_.insert(name);
  return layers::vector_of(view, name, vectors_);
}

Result<void> Eagle3Head::load_weights(const checkpoint::Checkpoint& target) {
  const families::ModelConfig& layer = config_.layer;
  const int hidden = layer.hidden_size;
  const std::string attention = std::string(kLayer) + "self_attn.";
  const std::string mlp = std::string(kLayer) + "mlp.";
  const bool bias = config_.attention_bias;
  TRY_ASSIGN(fc_, linear("fc", hidden, kEagle3Taps * hidden, false));
  TRY_ASSIGN(q_, linear(attention + "q_proj", layer.q_size(), 2 * hidden, bias));
  TRY_ASSIGN(k_, linear(attention + "k_proj", layer.kv_size(), 2 * hidden, bias));
  TRY_ASSIGN(v_, linear(attention + "v_proj", layer.kv_size(), 2 * hidden, bias));
  TRY_ASSIGN(o_, linear(attention + "o_proj", hidden, layer.q_size(),
                        file_.has(attention + "o_proj.bias")));
  TRY_ASSIGN(gate_, linear(mlp + "gate_proj", layer.intermediate_size, hidden, false));
  TRY_ASSIGN(up_, linear(mlp + "up_proj", layer.intermediate_size, hidden, false));
  TRY_ASSIGN(down_, linear(mlp + "down_proj", hidden, layer.intermediate_size, false));
  TRY_ASSIGN(lm_head_, linear("lm_head", config_.draft_vocab_size, hidden, false));
  const std::string prefix = kLayer;
  TRY_ASSIGN(input_layernorm_, vector(prefix + "input_layernorm.weight", hidden));
  TRY_ASSIGN(hidden_norm_, vector(prefix + "hidden_norm.weight", hidden));
  TRY_ASSIGN(post_norm_, vector(prefix + "post_attention_layernorm.weight", hidden));
  TRY_ASSIGN(norm_, vector("norm.weight", hidden));
  if (config_.norm_before_fc) {
    TRY_ASSIGN(input_norm_, vector("input_norm.weight", kEagle3Taps * hidden));
  }
  for (int i = 0; config_.fc_norm && i < kEagle3Taps; ++i) {
    TRY_ASSIGN(fc_norms_[i], vector(fmt::format("fc_norm.{}.weight", i), hidden));
  }
  if (!file_.has("embed_tokens.weight")) {
    if (target.config().embedding_scale != 1.0) {
      return Error{ErrorCode::kUnsupported,
                   fmt::format("{}: has no embed_tokens.weight, and the target scales its "
                               "embedding: give a head with an embedding of its own",
                               file_.path())};
    }
    TRY_ASSIGN(embedding_,
               layers::load_matrix(target, "model.embed_tokens.weight", layer.vocab_size, hidden));
    return {};
  }
  TRY_ASSIGN(const tensor::TensorView view,
             file_.tensor("embed_tokens.weight", std::array<int64_t, 2>{layer.vocab_size, hidden}));
  TRY_ASSIGN(embedding_, layers::matrix_of(view, "embed_tokens.weight"));
  read_.insert("embed_tokens.weight");
  return {};
}

// d2t: int64 (draft vocabulary); a target's id is the draft's plus this.
Result<void> Eagle3Head::load_ids() {
  const int vocab = config_.layer.vocab_size;
  if (config_.draft_vocab_size == vocab && !file_.has("d2t")) return {};
  TRY_ASSIGN(const tensor::TensorView view,
             file_.tensor("d2t", std::array<int64_t, 1>{config_.draft_vocab_size}));
  if (view.dtype != tensor::DType::kI64) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: tensor d2t is {}; supported here: I64", file_.path(),
                             tensor::dtype_name(view.dtype))};
  }
  read_.insert("d2t");
  draft_to_target_.reserve(static_cast<size_t>(config_.draft_vocab_size));
  for (int id = 0; id < config_.draft_vocab_size; ++id) {
    const int64_t offset = view.as<int64_t>()[id];
    if (offset < -id || offset >= vocab - id) {
      return Error{ErrorCode::kBadCheckpoint,
                   fmt::format("{}: tensor d2t: element {} is {}, which leads to no token of {}",
                               file_.path(), id, offset, vocab)};
    }
    draft_to_target_.push_back(static_cast<TokenId>(id + offset));
  }
  return {};
}

int64_t Eagle3Head::workspace_bytes() const {
  size_t floats = 0;
  for (const std::vector<float>* buffer :
       {&embedded_, &pair_, &cos_sin_, &queries_, &keys_, &values_, &mixed_, &state_, &normed_,
        &gates_, &ups_, &logits_}) {
    floats += buffer->capacity();
  }
  return static_cast<int64_t>(floats * sizeof(float) +
                              sequences_.capacity() * sizeof(kernels::SequenceRows) +
                              tokens_.capacity() * sizeof(TokenId)) +
         kernels_->scratch_bytes();
}

Result<Eagle3Head::Bytes> Eagle3Head::bytes_for(const std::string& folder,
                                                const families::ModelConfig& target,
                                                bool is_reference) {
  TRY_ASSIGN(const Eagle3Config config, read_config(folder, target));
  TRY_ASSIGN(const checkpoint::TensorFile file, open_file(folder));
  Bytes bytes{.weights = file.weight_bytes()};
  for (const auto& [name, view] : file.tensors()) {
    const bool is_vector = view.shape.size() == 1;
    if (name == "d2t") {
      bytes.weights += view.element_count() * static_cast<int64_t>(sizeof(TokenId));
    } else if (is_vector && name != "t2d") {
      bytes.weights += view.element_count() * static_cast<int64_t>(sizeof(float));
    }
  }
  bytes.workspace =
      kRowsMax * (row_floats(config) * static_cast<int64_t>(sizeof(float)) + kRowBytes) +
      (is_reference ? 0 : kKernelBytes);
  return bytes;
}

void Eagle3Head::combine(float* out, float* taps, int rows) {
  const int hidden = config_.layer.hidden_size;
  const int width = kEagle3Taps * hidden;
  const auto epsilon = static_cast<float>(config_.layer.rms_norm_epsilon);
  for (int first = 0; first < rows; first += kRowsMax) {
    const int count = std::min(kRowsMax, rows - first);
    float* const from = taps + int64_t{first} * width;
    if (input_norm_ != nullptr) kernels_->rms_norm(from, from, input_norm_, count, width, epsilon);
    for (int i = 0; fc_norms_[0] != nullptr && i < kEagle3Taps; ++i) {
      kernels_->rms_norm_heads(from + i * hidden, width, fc_norms_[i], count, 1, hidden, epsilon);
    }
    kernels_->linear(out + int64_t{first} * hidden, from, fc_, count, Output::kOverwrite);
  }
}

void Eagle3Head::begin_rows(std::span<const Row> rows, const kernels::KvLayer& cache) {
  const families::ModelConfig& layer = config_.layer;
  const int hidden = layer.hidden_size;
  const int count = static_cast<int>(rows.size());
  const auto epsilon = static_cast<float>(layer.rms_norm_epsilon);
  CHECK(count > 0 && count <= kRowsMax);
  tokens_.clear();
  sequences_.clear();
  for (int i = 0; i < count; ++i) {
    const Row& row = rows[static_cast<size_t>(i)];
    tokens_.push_back(row.token);
    sequences_.push_back({i, 1, row.place, row.blocks});
    rotary_.table_row(row.position, cos_sin_.data() + int64_t{i} * layer.head_size);
  }
  kernels_->embed(embedded_.data(), tokens_.data(), count, embedding_);
  for (int64_t i = 0; i < count; ++i) {
    float* const pair = pair_.data() + i * 2 * hidden;
    std::copy_n(embedded_.data() + i * hidden, hidden, pair);
    std::copy_n(rows[static_cast<size_t>(i)].feature, hidden, pair + hidden);
  }
  float* const features = pair_.data() + hidden;
  kernels_->rms_norm_heads(pair_.data(), 2 * hidden, input_layernorm_, count, 1, hidden, epsilon);
  kernels_->rms_norm_heads(features, 2 * hidden, hidden_norm_, count, 1, hidden, epsilon);
  kernels_->linear(keys_.data(), pair_.data(), k_, count, Output::kOverwrite);
  kernels_->linear(values_.data(), pair_.data(), v_, count, Output::kOverwrite);
  kernels_->rotate(
      keys_.data(), layer.kv_size(), cos_sin_.data(), count,
      {.heads = layer.kv_head_count, .head_stride = layer.head_size, .size = layer.head_size});
  kernels_->store_kv(cache, keys_.data(), values_.data(), layer.kv_size(), sequences_.data(),
                     count);
}

void Eagle3Head::remember(std::span<const Row> rows, const kernels::KvLayer& cache) {
  for (size_t first = 0; first < rows.size(); first += kRowsMax) {
    begin_rows(rows.subspan(first, std::min<size_t>(kRowsMax, rows.size() - first)), cache);
  }
}

float* Eagle3Head::forward(std::span<const Row> rows, const kernels::KvLayer& cache, float* next) {
  const families::ModelConfig& layer = config_.layer;
  const int hidden = layer.hidden_size;
  const int count = static_cast<int>(rows.size());
  const auto epsilon = static_cast<float>(layer.rms_norm_epsilon);
  begin_rows(rows, cache);
  for (int64_t i = 0; i < count; ++i) {
    const float* const from = config_.norm_before_residual ? pair_.data() + (2 * i + 1) * hidden
                                                           : rows[static_cast<size_t>(i)].feature;
    std::copy_n(from, hidden, state_.data() + i * hidden);
  }
  kernels_->linear(queries_.data(), pair_.data(), q_, count, Output::kOverwrite);
  kernels_->rotate(
      queries_.data(), layer.q_size(), cos_sin_.data(), count,
      {.heads = layer.head_count, .head_stride = layer.head_size, .size = layer.head_size});
  kernels_->attention(mixed_.data(), queries_.data(), layer.q_size(), cache,
                      {.heads = layer.head_count,
                       .kv_heads = layer.kv_head_count,
                       .head_size = layer.head_size,
                       .scale = static_cast<float>(layer.attention_scale)},
                      sequences_.data(), count);
  kernels_->linear(state_.data(), mixed_.data(), o_, count, Output::kAccumulate);
  kernels_->rms_norm(normed_.data(), state_.data(), post_norm_, count, hidden, epsilon);
  kernels_->linear(gates_.data(), normed_.data(), gate_, count, Output::kOverwrite);
  kernels_->linear(ups_.data(), normed_.data(), up_, count, Output::kOverwrite);
  kernels_->glu(gates_.data(), ups_.data(), int64_t{count} * layer.intermediate_size,
                {.kind = kernels::GluShape::Kind::kSwiglu});
  kernels_->linear(state_.data(), gates_.data(), down_, count, Output::kAccumulate);
  kernels_->rms_norm(normed_.data(), state_.data(), norm_, count, hidden, epsilon);
  std::copy_n((config_.norm_output ? normed_ : state_).data(), int64_t{count} * hidden, next);
  kernels_->linear(logits_.data(), normed_.data(), lm_head_, count, Output::kOverwrite);
  return logits_.data();
}

}  // namespace pelton::speculative
