#include "speculative/medusa_heads.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/file.h"
#include "checkpoint/foreign_text.h"

namespace pelton::speculative {
namespace {

using Output = kernels::Kernels::Output;

constexpr const char* kTokenMap = "token_map";

Result<Json> read_json(const std::string& folder) {
  constexpr size_t kBytesMax = size_t{1} << 20;
  const std::string path = folder + "/config.json";
  TRY_ASSIGN(const std::string text, base::read_file(path, kBytesMax));
  Result<Json> json = Json::parse(text);
  if (json.ok()) return json;
  return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: {}", path, json.error().message)};
}

// As published: beside the other heads' files, or merged into one.
Result<std::string> weights_file(const std::string& folder) {
  for (const char* name : {"/model.safetensors", "/medusa_lm_head.safetensors"}) {
    if (std::filesystem::exists(folder + name)) return folder + name;
  }
  if (std::filesystem::exists(folder + "/medusa_lm_head.pt")) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}/medusa_lm_head.pt is a pickle, which is not read; supported: the "
                             "same tensors as medusa_lm_head.safetensors",
                             folder)};
  }
  return folder + "/model.safetensors";  // whose absence is an error that names it
}

int64_t workspace_floats(const MedusaConfig& config) {
  return MedusaHeads::kRowsMax * (int64_t{3} * config.hidden_size + config.draft_vocab_size);
}

// What kernels without experts keep of a step (cost_model/footprint.cc): of each row a pointer and
// its sequence, and one counter.
constexpr int64_t kKernelBytes = MedusaHeads::kRowsMax * 12 + 4;

}  // namespace

MedusaHeads::MedusaHeads(const MedusaConfig& config, checkpoint::TensorFile file,
                         TargetHead target_head, kernels::Kernels& kernels)
    : config_(config),
      file_(std::move(file)),
      target_head_(std::move(target_head)),
      kernels_(&kernels) {
  const auto rows = [](int64_t width) { return static_cast<size_t>(kRowsMax * width); };
  kernels_->reserve({.tokens = kRowsMax});
  states_.resize(rows(config.hidden_size));
  gates_.resize(rows(config.hidden_size));
  ones_.resize(rows(config.hidden_size), 1.0f);
  logits_.resize(rows(config.draft_vocab_size));
}

Result<MedusaConfig> MedusaHeads::read_config(const std::string& folder,
                                              const families::ModelConfig& target) {
  TRY_ASSIGN(const Json json, read_json(folder));
  return parse_medusa_config(json, target, folder + "/config.json");
}

Result<bool> MedusaHeads::is_in(const std::string& folder) {
  TRY_ASSIGN(const Json json, read_json(folder));
  return is_medusa_config(json);
}

Result<int> MedusaHeads::count_in(const std::string& folder) {
  TRY_ASSIGN(const Json json, read_json(folder));
  return medusa_head_count(json, folder + "/config.json");
}

Result<int> MedusaHeads::draft_vocab_in(const std::string& folder,
                                        const families::ModelConfig& target) {
  TRY_ASSIGN(const MedusaConfig config, read_config(folder, target));
  return config.draft_vocab_size;
}

// All tensors by FasterDecoding's names.
Result<checkpoint::TensorFile> MedusaHeads::open_file(const std::string& folder,
                                                      const MedusaConfig& config) {
  TRY_ASSIGN(const std::string path, weights_file(folder));
  TRY_ASSIGN(checkpoint::TensorFile file, checkpoint::TensorFile::open(path));
  TRY(file.rename("medusa_heads.", ""));
  TRY(file.rename("medusa_head.", ""));
  for (int head = 0; head < config.heads; ++head) {
    for (int block = 0; block < config.blocks; ++block) {
      TRY(file.rename(fmt::format("blocks.{}.layers.{}.", head, block),
                      fmt::format("{}.{}.linear.", head, block)));
    }
    // One of all heads is the first's by name.
    const bool is_one = config.output == MedusaConfig::Output::kOne;
    if (is_one && head > 0) continue;
    TRY(file.rename(fmt::format("lm_heads.{}.", head),
                    is_one ? "lm_head." : fmt::format("{}.{}.", head, config.blocks)));
  }
  return file;
}

Result<MedusaHeads> MedusaHeads::load(const std::string& folder,
                                      const checkpoint::Checkpoint& target, TargetHead target_head,
                                      kernels::Kernels& kernels) {
  TRY_ASSIGN(const MedusaConfig config, read_config(folder, target.config()));
  TRY_ASSIGN(checkpoint::TensorFile file, open_file(folder, config));
  MedusaHeads heads(config, std::move(file), std::move(target_head), kernels);
  TRY(heads.load_weights(target));
  TRY(heads.load_ids());
  TRY(heads.check_all_read());
  return heads;
}

// A tensor that nothing reads would be heads of another kind.
Result<void> MedusaHeads::check_all_read() const {
  for (const auto& [name, view] : file_.tensors()) {
    if (read_.contains(name)) continue;
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: tensor {} is none that Medusa heads of this config.json have",
                             file_.path(), checkpoint::shown(name))};
  }
  return {};
}

Result<kernels::Matrix> MedusaHeads::matrix(const std::string& name, int rows, int cols) {
  TRY_ASSIGN(const tensor::TensorView view, file_.tensor(name, std::array<int64_t, 2>{rows, cols}));
  read_.insert(name);
  return layers::matrix_of(view, name);
}

Result<kernels::Linear> MedusaHeads::block(int head, int index) {
  const int hidden = config_.hidden_size;
  const std::string name = fmt::format("{}.{}.linear.", head, index);
  const std::string bias = name + "bias";
  kernels::Linear linear;
  TRY_ASSIGN(linear.weight, matrix(name + "weight", hidden, hidden));
  const bool has_bias = config_.bias == MedusaConfig::Bias::kAdded ||
                        (config_.bias == MedusaConfig::Bias::kUnsaid && file_.has(bias));
  if (!has_bias) return linear;
  TRY_ASSIGN(const tensor::TensorView view, file_.tensor(bias, std::array<int64_t, 1>{hidden}));
  read_.insert(bias);
  TRY_ASSIGN(linear.bias, layers::vector_of(view, bias, vectors_));
  return linear;
}

std::string MedusaHeads::output_name(int head) const {
  if (config_.output == MedusaConfig::Output::kOne) return "lm_head.weight";
  return fmt::format("{}.{}.weight", head, config_.blocks);
}

Result<void> MedusaHeads::load_weights(const checkpoint::Checkpoint& target) {
  rms_norm_epsilon_ = target.config().rms_norm_epsilon;
  TRY_ASSIGN(norm_, layers::load_norm(target, "model.norm.weight", config_.hidden_size, vectors_));
  for (int head = 0; head < config_.heads; ++head) {
    for (int index = 0; index < config_.blocks; ++index) {
      TRY_ASSIGN(const kernels::Linear linear, block(head, index));
      blocks_.push_back(linear);
    }
  }
  const int outputs = config_.output == MedusaConfig::Output::kOwn   ? config_.heads
                      : config_.output == MedusaConfig::Output::kOne ? 1
                                                                     : 0;
  for (int head = 0; head < outputs; ++head) {
    kernels::Linear output;
    TRY_ASSIGN(output.weight,
               matrix(output_name(head), config_.draft_vocab_size, config_.hidden_size));
    outputs_.push_back(output);
  }
  CHECK(outputs > 0 || target_head_ != nullptr);
  return {};
}

// token_map: int64 (draft vocabulary), the target's ids.
Result<void> MedusaHeads::load_ids() {
  if (config_.draft_vocab_size == config_.vocab_size && !file_.has(kTokenMap)) return {};
  TRY_ASSIGN(const tensor::TensorView view,
             file_.tensor(kTokenMap, std::array<int64_t, 1>{config_.draft_vocab_size}));
  if (view.dtype != tensor::DType::kI64) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: tensor {} is {}; supported here: I64", file_.path(), kTokenMap,
                             tensor::dtype_name(view.dtype))};
  }
  read_.insert(kTokenMap);
  draft_to_target_.reserve(static_cast<size_t>(config_.draft_vocab_size));
  for (int id = 0; id < config_.draft_vocab_size; ++id) {
    const int64_t of_target = view.as<int64_t>()[id];
    if (of_target < 0 || of_target >= config_.vocab_size) {
      return Error{ErrorCode::kBadCheckpoint,
                   fmt::format("{}: tensor {}: element {} is {}, which is no token of {}",
                               file_.path(), kTokenMap, id, of_target, config_.vocab_size)};
    }
    draft_to_target_.push_back(static_cast<TokenId>(of_target));
  }
  return {};
}

int64_t MedusaHeads::weight_bytes() const {
  return file_.weight_bytes() + vectors_.bytes() +
         static_cast<int64_t>(draft_to_target_.size() * sizeof(TokenId));
}

int64_t MedusaHeads::workspace_bytes() const {
  const size_t floats =
      states_.capacity() + gates_.capacity() + ones_.capacity() + logits_.capacity();
  return static_cast<int64_t>(floats * sizeof(float)) + kernels_->scratch_bytes();
}

Result<MedusaHeads::Bytes> MedusaHeads::bytes_for(const std::string& folder,
                                                  const families::ModelConfig& target,
                                                  bool is_reference) {
  TRY_ASSIGN(const MedusaConfig config, read_config(folder, target));
  TRY_ASSIGN(const checkpoint::TensorFile file, open_file(folder, config));
  constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));
  Bytes bytes{.weights = file.weight_bytes() + config.hidden_size * kFloatBytes};  // and the norm
  for (const auto& [name, view] : file.tensors()) {
    if (view.shape.size() != 1) continue;
    const auto each = name == kTokenMap ? static_cast<int64_t>(sizeof(TokenId)) : kFloatBytes;
    bytes.weights += view.element_count() * each;
  }
  bytes.workspace = workspace_floats(config) * kFloatBytes + (is_reference ? 0 : kKernelBytes);
  return bytes;
}

void MedusaHeads::norm(float* x, int rows) {
  kernels_->rms_norm(x, x, norm_, rows, config_.hidden_size, static_cast<float>(rms_norm_epsilon_));
}

float* MedusaHeads::forward(const float* states, int count, int heads) {
  const int64_t hidden = config_.hidden_size;
  const int64_t vocab = config_.draft_vocab_size;
  CHECK(count > 0 && heads > 0 && heads <= config_.heads && count * heads <= kRowsMax);
  for (int head = 0; head < heads; ++head) {
    float* const own = states_.data() + int64_t{head} * count * hidden;
    std::copy_n(states, count * hidden, own);
    for (int index = 0; index < config_.blocks; ++index) {
      const auto at = static_cast<size_t>(head * config_.blocks + index);
      kernels_->linear(gates_.data(), own, blocks_[at], count, Output::kOverwrite);
      kernels_->glu(gates_.data(), ones_.data(), count * hidden,
                    {.kind = kernels::GluShape::Kind::kSwiglu});
      for (int64_t i = 0; i < count * hidden; ++i) own[i] += gates_[static_cast<size_t>(i)];
    }
  }
  // One of all heads is read once.
  if (config_.output == MedusaConfig::Output::kTarget) {
    target_head_(logits_.data(), states_.data(), heads * count);
    return logits_.data();
  }
  if (config_.output == MedusaConfig::Output::kOne) {
    kernels_->linear(logits_.data(), states_.data(), outputs_[0], heads * count,
                     Output::kOverwrite);
    return logits_.data();
  }
  for (int64_t head = 0; head < heads; ++head) {
    kernels_->linear(logits_.data() + head * count * vocab, states_.data() + head * count * hidden,
                     outputs_[static_cast<size_t>(head)], count, Output::kOverwrite);
  }
  return logits_.data();
}

}  // namespace pelton::speculative
