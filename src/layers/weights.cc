#include "layers/weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "layers/int_weights.h"
#include "tensor/bits.h"

namespace pelton::layers {
namespace {

using kernels::Format;
using tensor::DType;
using tensor::TensorView;

Error unsupported(const std::string& name, DType dtype, const char* wanted) {
  return Error{ErrorCode::kUnsupported, fmt::format("tensor {} is {}; supported here: {}", name,
                                                    tensor::dtype_name(dtype), wanted)};
}

std::optional<Format> row_format(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Format::kF32;
    case DType::kF16:
      return Format::kF16;
    case DType::kBf16:
      return Format::kBf16;
    case DType::kQ8_0:
      return Format::kQ8_0;
    case DType::kMxfp4:
      return Format::kMxfp4Blocks;
    case DType::kInt8Tiles:
      return Format::kInt8Tiles;
    case DType::kMxfp4Tiles:
      return Format::kMxfp4Tiles;
    case DType::kInt4Tiles:
      return Format::kInt4Tiles;
    case DType::kF8E4m3:
      return Format::kF8Blocks;
    case DType::kCompactBf16:
      return Format::kCompactBf16;
    default:
      if (tensor::is_ggml_block_type(dtype)) return kernels::ggml_format(dtype);
      return std::nullopt;
  }
}

// Elements [begin, begin + count) as float32. Plain types only.
Result<void> widen(const TensorView& view, const std::string& name, int64_t begin, int64_t count,
                   float* out) {
  switch (view.dtype) {
    case DType::kF32:
      std::memcpy(out, view.as<float>() + begin, static_cast<size_t>(count) * sizeof(float));
      return {};
    case DType::kF16:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = tensor::f16_to_float(view.as<uint16_t>()[begin + i]);
      }
      return {};
    case DType::kBf16:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = tensor::bf16_to_float(view.as<uint16_t>()[begin + i]);
      }
      return {};
    default:
      return unsupported(name, view.dtype, "F32, F16, BF16");
  }
}

// Of FP8: those of blocks as they lie in the file where they are float32, otherwise widened.
Result<kernels::BlockScales> load_scales(const checkpoint::Checkpoint& checkpoint,
                                         const std::string& name, int rows, int cols,
                                         FloatVectors& keep) {
  using families::WeightQuantization;
  kernels::BlockScales scales;
  const WeightQuantization kind = checkpoint.config().quantization;
  if (kind == WeightQuantization::kF8Blocks) {
    constexpr int64_t kBlock = families::kF8Block;
    const std::array<int64_t, 2> blocks{(rows + kBlock - 1) / kBlock, (cols + kBlock - 1) / kBlock};
    const std::string full = name + "_scale_inv";
    TRY_ASSIGN(const TensorView view, checkpoint.tensor(full, blocks));
    if (view.dtype == DType::kF32) {
      scales.data = view.as<float>();
      return scales;
    }
    float* const out = keep.add(view.element_count());
    TRY(widen(view, full, 0, view.element_count(), out));
    scales.data = out;
    return scales;
  }
  scales.cols = cols;
  scales.rows = kind == WeightQuantization::kF8Rows ? 1 : rows;
  const std::vector<int64_t> shape =
      kind == WeightQuantization::kF8Rows ? std::vector<int64_t>{rows, 1} : std::vector<int64_t>{1};
  TRY_ASSIGN(const TensorView view, checkpoint.tensor(name + "_scale", shape));
  float* const out = keep.add(shape[0]);
  TRY(widen(view, name + "_scale", 0, shape[0], out));
  scales.data = out;
  return scales;
}

// Finds the experts of one layer, in whichever of the layouts they are.
class ExpertLoader {
 public:
  ExpertLoader(const checkpoint::Checkpoint& checkpoint, const std::string& prefix,
               const ExpertSizes& sizes, FloatVectors& keep)
      : checkpoint_(checkpoint), prefix_(prefix), sizes_(sizes), keep_(keep) {}

  Result<kernels::ExpertWeights> load() {
    const int inner = sizes_.inner;
    const int hidden = sizes_.hidden;
    kernels::ExpertWeights weights;
    if (checkpoint_.has(prefix_ + "gate_up_proj_blocks")) {
      TRY_ASSIGN(weights.gate, pairs("gate_up_proj", 2 * inner, hidden));
      TRY_ASSIGN(weights.down, pairs("down_proj", hidden, inner));
    } else if (checkpoint_.weight_layout() == families::WeightLayout::kFusedExperts) {
      TRY(split_fused("gate_up_proj", weights));
      TRY_ASSIGN(weights.down, rows("down_proj", hidden, inner));
    } else if (checkpoint_.has(prefix_ + "0.gate_proj.weight") ||
               checkpoint_.has(prefix_ + "0.gate_proj.qweight") ||
               checkpoint_.has(prefix_ + "0.gate_proj.weight_packed")) {
      TRY(load_apart(weights));
    } else if (checkpoint_.has(prefix_ + "gate_up_proj")) {
      TRY_ASSIGN(weights.gate, columns("gate_up_proj", 2 * inner, hidden));
      TRY_ASSIGN(weights.down, columns("down_proj", hidden, inner));
    } else if (checkpoint_.has(prefix_ + "gate_up.weight")) {
      TRY_ASSIGN(weights.gate, tiles("gate_up", 2 * inner, hidden));
      TRY_ASSIGN(weights.down, tiles("down", hidden, inner));
    } else {
      TRY(load_rows(weights));
    }
    return weights;
  }

 private:
  // `name`_blocks (experts, rows, cols/32, 16) and `name`_scales
  Result<kernels::Experts> pairs(const std::string& name, int rows, int cols) {
    const int64_t e = sizes_.experts;
    const int64_t groups = cols / 32;
    kernels::Experts experts = shape(rows, cols, Format::kMxfp4Pairs);
    TRY_ASSIGN(const TensorView blocks,
               checkpoint_.tensor(prefix_ + name + "_blocks", DType::kU8,
                                  std::array<int64_t, 4>{e, rows, groups, 16}));
    TRY_ASSIGN(const TensorView scales,
               checkpoint_.tensor(prefix_ + name + "_scales", DType::kU8,
                                  std::array<int64_t, 3>{e, rows, groups}));
    TRY_ASSIGN(experts.bias, bias(name, rows));
    experts.data = blocks.bytes.data();
    experts.scales = scales.bytes.data();
    return experts;
  }

  // `name` (experts, cols, rows)
  Result<kernels::Experts> columns(const std::string& name, int rows, int cols) {
    kernels::Experts experts = shape(rows, cols, Format::kBf16Columns);
    TRY_ASSIGN(const TensorView view,
               checkpoint_.tensor(prefix_ + name, DType::kBf16,
                                  std::array<int64_t, 3>{sizes_.experts, cols, rows}));
    TRY_ASSIGN(experts.bias, bias(name, rows));
    experts.data = view.bytes.data();
    return experts;
  }

  // `name`.weight (experts, rows, cols) and `name`.bias
  Result<kernels::Experts> tiles(const std::string& name, int rows, int cols) {
    kernels::Experts experts = shape(rows, cols, Format::kMxfp4Tiles);
    TRY_ASSIGN(const TensorView view,
               checkpoint_.tensor(prefix_ + name + ".weight", DType::kMxfp4Tiles,
                                  std::array<int64_t, 3>{sizes_.experts, rows, cols}));
    TRY_ASSIGN(experts.bias, vectors(prefix_ + name + ".bias", rows));
    experts.data = view.bytes.data();
    experts.activations = activations_of(checkpoint_);
    return experts;
  }

  Result<void> load_rows(kernels::ExpertWeights& weights) {
    const int inner = sizes_.inner;
    const int hidden = sizes_.hidden;
    if (checkpoint_.has(prefix_ + "gate_up_exps")) {
      TRY(split_fused("gate_up_exps", weights));
    } else {
      TRY_ASSIGN(weights.gate, rows("gate_exps", inner, hidden));
      TRY_ASSIGN(weights.up, rows("up_exps", inner, hidden));
      if (weights.gate.format != weights.up.format) {
        return Error{ErrorCode::kUnsupported,
                     fmt::format("tensors {}gate_exps and up_exps differ in type", prefix_)};
      }
    }
    TRY_ASSIGN(weights.down, rows("down_exps", hidden, inner));
    return {};
  }

  // E.gate_proj.weight, E.up_proj.weight, E.down_proj.weight for each expert E.
  Result<void> load_apart(kernels::ExpertWeights& weights) {
    TRY_ASSIGN(weights.gate, each("gate_proj", sizes_.inner, sizes_.hidden));
    TRY_ASSIGN(weights.up, each("up_proj", sizes_.inner, sizes_.hidden));
    TRY_ASSIGN(weights.down, each("down_proj", sizes_.hidden, sizes_.inner));
    if (weights.gate.format == weights.up.format) return {};
    return Error{ErrorCode::kUnsupported,
                 fmt::format("tensors {}N.gate_proj and up_proj differ in type", prefix_)};
  }

  Result<kernels::Experts> each(const char* name, int rows, int cols) {
    kernels::Experts experts = shape(rows, cols, Format::kBf16);
    kernels::ExpertMatrix* const to = keep_.add_matrices(sizes_.experts);
    experts.apart = to;
    for (int e = 0; e < sizes_.experts; ++e) {
      const std::string full = fmt::format("{}{}.{}.weight", prefix_, e, name);
      TRY_ASSIGN(const kernels::Matrix matrix, load_weight(checkpoint_, full, rows, cols, keep_));
      if (e > 0 && matrix.format != experts.format) {
        return Error{ErrorCode::kUnsupported,
                     fmt::format("tensor {} has another type than expert 0's", full)};
      }
      experts.format = matrix.format;
      to[e] = {matrix.data, matrix.block_scales};
    }
    return experts;
  }

  // `name` (experts, rows, cols)
  Result<kernels::Experts> rows(const std::string& name, int rows, int cols) {
    TRY_ASSIGN(
        const TensorView view,
        checkpoint_.tensor(prefix_ + name, std::array<int64_t, 3>{sizes_.experts, rows, cols}));
    const std::optional<Format> format = row_format(view.dtype);
    if (!format) return unsupported(prefix_ + name, view.dtype, "F32, F16, BF16, GGUF's blocks");
    kernels::Experts experts = shape(rows, cols, *format);
    if (checkpoint_.config().expert_bias) {
      TRY_ASSIGN(experts.bias, bias(name, rows));
    }
    experts.data = view.bytes.data();
    return experts;
  }

  // `name`: each expert's gate rows, then its up rows.
  Result<void> split_fused(const char* name, kernels::ExpertWeights& weights) {
    const int inner = sizes_.inner;
    TRY_ASSIGN(weights.gate, rows(name, 2 * inner, sizes_.hidden));
    weights.gate.rows = inner;
    weights.up = weights.gate;
    weights.up.data = static_cast<const uint8_t*>(weights.gate.data) +
                      inner * kernels::row_bytes(weights.gate.format, sizes_.hidden);
    if (weights.gate.bias == nullptr) return {};
    float* gate_bias = keep_.add(int64_t{sizes_.experts} * inner);
    float* up_bias = keep_.add(int64_t{sizes_.experts} * inner);
    for (int64_t e = 0; e < sizes_.experts; ++e) {
      const float* both = weights.gate.bias + 2 * e * inner;
      std::copy_n(both, inner, gate_bias + e * inner);
      std::copy_n(both + inner, inner, up_bias + e * inner);
    }
    weights.gate.bias = gate_bias;
    weights.up.bias = up_bias;
    return {};
  }

  // `name`_bias (experts, rows)
  Result<const float*> bias(const std::string& name, int64_t rows) {
    return vectors(prefix_ + name + "_bias", rows);
  }

  // (experts, rows)
  Result<const float*> vectors(const std::string& full, int64_t rows) {
    const std::array<int64_t, 2> shape{sizes_.experts, rows};
    TRY_ASSIGN(const TensorView view, checkpoint_.tensor(full, shape));
    float* out = keep_.add(shape[0] * shape[1]);
    TRY(widen(view, full, 0, shape[0] * shape[1], out));
    return out;
  }

  kernels::Experts shape(int rows, int cols, Format format) const {
    return {.experts = sizes_.experts,
            .rows = rows,
            .cols = cols,
            .format = format,
            .expert_rows = rows};
  }

  const checkpoint::Checkpoint& checkpoint_;
  const std::string& prefix_;
  const ExpertSizes sizes_;
  FloatVectors& keep_;
};

}  // namespace

float* FloatVectors::add(int64_t count) {
  arrays_.push_back(std::make_unique<float[]>(static_cast<size_t>(count)));
  bytes_ += count * static_cast<int64_t>(sizeof(float));
  return arrays_.back().get();
}

kernels::ExpertMatrix* FloatVectors::add_matrices(int64_t count) {
  matrices_.push_back(std::make_unique<kernels::ExpertMatrix[]>(static_cast<size_t>(count)));
  bytes_ += count * static_cast<int64_t>(sizeof(kernels::ExpertMatrix));
  return matrices_.back().get();
}

uint8_t* FloatVectors::add_bytes(int64_t count) {
  blocks_.push_back(std::make_unique<uint8_t[]>(static_cast<size_t>(count)));
  bytes_ += count;
  return blocks_.back().get();
}

int32_t* FloatVectors::add_integers(int64_t count) {
  integers_.push_back(std::make_unique<int32_t[]>(static_cast<size_t>(count)));
  bytes_ += count * static_cast<int64_t>(sizeof(int32_t));
  return integers_.back().get();
}

Result<const float*> load_vector(const checkpoint::Checkpoint& checkpoint, const std::string& name,
                                 int64_t count, FloatVectors& keep) {
  TRY_ASSIGN(const TensorView view, checkpoint.tensor(name, std::array{count}));
  return vector_of(view, name, keep);
}

Result<const float*> vector_of(const TensorView& view, const std::string& name,
                               FloatVectors& keep) {
  float* out = keep.add(view.element_count());
  TRY(widen(view, name, 0, view.element_count(), out));
  return out;
}

Result<const float*> load_norm(const checkpoint::Checkpoint& checkpoint, const std::string& name,
                               int64_t count, FloatVectors& keep) {
  TRY_ASSIGN(const TensorView view, checkpoint.tensor(name, std::array{count}));
  float* out = keep.add(count);
  TRY(widen(view, name, 0, count, out));
  const bool is_gguf = checkpoint.layout() == checkpoint::LayoutKind::kGguf;
  if (checkpoint.config().norm_adds_one && !is_gguf) {
    for (int64_t i = 0; i < count; ++i) out[i] += 1.0f;
  }
  return out;
}

Result<kernels::Matrix> load_matrix(const checkpoint::Checkpoint& checkpoint,
                                    const std::string& name, int rows, int cols) {
  TRY_ASSIGN(const TensorView view, checkpoint.tensor(name, std::array<int64_t, 2>{rows, cols}));
  TRY_ASSIGN(kernels::Matrix matrix, matrix_of(view, name));
  matrix.activations = activations_of(checkpoint);
  return matrix;
}

Result<kernels::Matrix> matrix_of(const TensorView& view, const std::string& name) {
  const std::optional<Format> format = row_format(view.dtype);
  if (!format || format == Format::kMxfp4Blocks || format == Format::kMxfp4Tiles) {
    return unsupported(name, view.dtype, "F32, F16, BF16, GGUF's blocks");
  }
  return kernels::Matrix{.data = view.bytes.data(),
                         .rows = static_cast<int>(view.shape[0]),
                         .cols = static_cast<int>(view.shape[1]),
                         .format = *format};
}

Result<kernels::Matrix> load_weight(const checkpoint::Checkpoint& checkpoint,
                                    const std::string& name, int rows, int cols,
                                    FloatVectors& keep) {
  const bool in_bytes = checkpoint.config().int_weights.in_bytes;
  if ((in_bytes || !checkpoint.has(name)) && name.ends_with("weight")) {
    const std::string base = name.substr(0, name.size() - std::string_view("weight").size());
    if (in_bytes || checkpoint.has(base + "qweight") || checkpoint.has(base + "weight_packed")) {
      return load_int_weight(checkpoint, base, rows, cols, keep);
    }
  }
  TRY_ASSIGN(kernels::Matrix matrix, load_matrix(checkpoint, name, rows, cols));
  if (matrix.format == Format::kF8Blocks) {
    TRY_ASSIGN(matrix.block_scales, load_scales(checkpoint, name, rows, cols, keep));
  }
  return matrix;
}

Result<kernels::Linear> load_linear(const checkpoint::Checkpoint& checkpoint,
                                    const std::string& name, int rows, int cols, Bias bias,
                                    FloatVectors& keep) {
  kernels::Linear linear;
  TRY_ASSIGN(linear.weight, load_weight(checkpoint, name + ".weight", rows, cols, keep));
  if (bias == Bias::kNone) return linear;
  TRY_ASSIGN(linear.bias, load_vector(checkpoint, name + ".bias", rows, keep));
  return linear;
}

Result<kernels::ExpertWeights> load_experts(const checkpoint::Checkpoint& checkpoint,
                                            const std::string& prefix, const ExpertSizes& sizes,
                                            FloatVectors& keep) {
  return ExpertLoader(checkpoint, prefix, sizes, keep).load();
}

kernels::Activations activations_of(const checkpoint::Checkpoint& checkpoint) {
  return checkpoint.activation_bits() == 8 ? kernels::Activations::kInt8
                                           : kernels::Activations::kInt16;
}

int64_t matrix_bytes(const kernels::Matrix& matrix) {
  return matrix.rows * kernels::row_bytes(matrix.format, matrix.cols);
}

int64_t expert_bytes(const kernels::Experts& experts) {
  const int64_t bias = experts.bias != nullptr ? sizeof(float) : 0;
  return experts.rows * (kernels::row_bytes(experts.format, experts.cols) + bias);
}

}  // namespace pelton::layers
