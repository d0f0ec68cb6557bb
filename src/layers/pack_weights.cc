#include "layers/pack_weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/digest.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/sized_file.h"
#include "checkpoint/tiled_tensor.h"
#include "families/family.h"
#include "kernels/tiles.h"
#include "layers/weights.h"

namespace pelton::layers {
namespace {

using checkpoint::Checkpoint;
using families::ModelConfig;
using kernels::Format;
using kernels::kTileRows;
using kernels::StoredMatrix;
using tensor::DType;

constexpr int64_t kPieceBytes = int64_t{1} << 20;
constexpr int64_t kPiecesPerReport = 64;
constexpr size_t kSha256Digits = 64;

// A tensor to be written: equal units, each made by itself, in any order.
struct Output {
  checkpoint::PlannedTensor stored;
  int64_t unit_count = 0;
  int64_t unit_bytes = 0;
  std::function<void(int64_t unit, uint8_t* out)> make;
  int64_t offset = 0;  // in the file

  int64_t bytes() const { return unit_count * unit_bytes; }
};

DType plain_dtype(Format format) {
  switch (format) {
    case Format::kF32:
      return DType::kF32;
    case Format::kF16:
      return DType::kF16;
    default:
      return DType::kBf16;
  }
}

// Several matrices of one format and width, one below the other.
struct Stack {
  std::vector<kernels::Matrix> parts;

  int64_t rows() const {
    int64_t sum = 0;
    for (const kernels::Matrix& part : parts) sum += part.rows;
    return sum;
  }
  int cols() const { return parts[0].cols; }
  // So that no tile has rows of two parts, and no block of columns is cut.
  bool is_of_whole_tiles() const {
    constexpr int kTileColumns = 32;
    return cols() % kTileColumns == 0 &&
           std::all_of(parts.begin(), parts.end(),
                       [](const kernels::Matrix& part) { return part.rows % kTileRows == 0; });
  }
  Format format() const { return parts[0].format; }
  // The part that row `row` is in, and its number there.
  std::pair<const kernels::Matrix*, int64_t> at(int64_t row) const {
    size_t i = 0;
    for (; row >= parts[i].rows; ++i) row -= parts[i].rows;
    return {&parts[i], row};
  }
};

class Packer {
 public:
  Packer(const Checkpoint& checkpoint, const PackOptions& options)
      : checkpoint_(checkpoint), config_(checkpoint.config()), options_(options) {}

  Result<std::vector<Output>> outputs() {
    const int hidden = config_.hidden_size;
    for (int layer = 0; layer < config_.layer_count(); ++layer) {
      const std::string prefix = fmt::format("model.layers.{}.", layer);
      TRY(vector(prefix + "input_layernorm.weight", hidden));
      TRY(attention(prefix + "self_attn."));
      TRY(vector(prefix + "post_attention_layernorm.weight", hidden));
      if (config_.post_norms) {
        TRY(vector(prefix + "pre_feedforward_layernorm.weight", hidden));
        TRY(vector(prefix + "post_feedforward_layernorm.weight", hidden));
      }
      TRY(feed_forward(prefix + "mlp.", config_.layers[static_cast<size_t>(layer)].has_experts));
    }
    TRY(matrix("model.embed_tokens.weight", config_.vocab_size, hidden, MatrixWeights::kAsShipped));
    TRY(vector("model.norm.weight", hidden));
    TRY(head());
    return std::move(outputs_);
  }

 private:
  Result<void> attention(const std::string& prefix) {
    const int hidden = config_.hidden_size;
    const int q = config_.q_size();
    const int kv = config_.kv_size();
    const Bias has_bias = config_.qkv_bias ? Bias::kAdded : Bias::kNone;
    Stack qkv;
    std::vector<float> bias;
    for (const auto& [name, rows] : {std::pair("q_proj", q), {"k_proj", kv}, {"v_proj", kv}}) {
      TRY_ASSIGN(const kernels::Linear linear,
                 load_linear(checkpoint_, prefix + name, rows, hidden, has_bias, keep_));
      qkv.parts.push_back(linear.weight);
      if (config_.qkv_bias) bias.insert(bias.end(), linear.bias, linear.bias + rows);
      if (linear.weight.format != qkv.format()) {
        return Error{ErrorCode::kUnsupported,
                     fmt::format("{}q_proj and {} differ in type", prefix, name)};
      }
    }
    if (config_.qkv_bias) {
      add_vector(prefix + "qkv_proj.bias", {q + int64_t{2} * kv}, std::move(bias));
    }
    TRY(add_matrix(prefix + "qkv_proj.weight", qkv, options_.matrices));
    if (config_.attn_out_bias) TRY(vector(prefix + "o_proj.bias", hidden));
    TRY(matrix(prefix + "o_proj.weight", hidden, q, options_.matrices));
    if (config_.qk_norm) {
      TRY(vector(prefix + "q_norm.weight", config_.head_size));
      TRY(vector(prefix + "k_norm.weight", config_.head_size));
    }
    if (config_.attention_sinks) TRY(vector(prefix + "sinks", config_.head_count));
    return {};
  }

  Result<void> feed_forward(const std::string& prefix, bool has_experts) {
    const int hidden = config_.hidden_size;
    if (has_experts) {
      TRY(vector(prefix + "router.bias", config_.expert_count));
      TRY(matrix(prefix + "router.weight", config_.expert_count, hidden,
                 MatrixWeights::kAsShipped));
      return experts(prefix + "experts.");
    }
    const int inner = config_.intermediate_size;
    for (const auto& [name, rows, cols] : {std::tuple("gate_proj", inner, hidden),
                                           {"up_proj", inner, hidden},
                                           {"down_proj", hidden, inner}}) {
      if (config_.mlp_bias) TRY(vector(prefix + name + ".bias", rows));
      TRY(matrix(prefix + name + ".weight", rows, cols, options_.matrices));
    }
    return {};
  }

  Result<void> vector(const std::string& name, int64_t count) {
    TRY_ASSIGN(const float* values, load_vector(checkpoint_, name, count, keep_));
    add_vector(name, {count}, std::vector<float>(values, values + count));
    return {};
  }

  void add_vector(const std::string& name, std::vector<int64_t> shape, std::vector<float> values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
    outputs_.push_back({.stored = {name, DType::kF32, std::move(shape)},
                        .unit_count = 1,
                        .unit_bytes = bytes,
                        .make = [values = std::move(values), bytes](int64_t, uint8_t* out) {
                          std::memcpy(out, values.data(), static_cast<size_t>(bytes));
                        }});
  }

  Result<void> matrix(const std::string& name, int rows, int cols, MatrixWeights weights) {
    TRY_ASSIGN(const kernels::Matrix found, load_matrix(checkpoint_, name, rows, cols));
    return add_matrix(name, {{found}}, weights);
  }

  Result<void> head() {
    const bool tied = config_.tied_head;
    TRY_ASSIGN(const kernels::Matrix found,
               load_matrix(checkpoint_, tied ? "model.embed_tokens.weight" : "lm_head.weight",
                           config_.vocab_size, config_.hidden_size));
    const bool coarse =
        options_.coarse_head && found.format != Format::kQ8_0 && Stack{{found}}.is_of_whole_tiles();
    if (coarse) add_tiles(std::string(families::kCoarseHead), DType::kInt4Tiles, {{found}});
    if (tied) return {};  // the embedding, which stays as it is
    return add_matrix("lm_head.weight", {{found}},
                      coarse ? MatrixWeights::kAsShipped : options_.matrices);
  }

  // Whole tiles.
  void add_tiles(const std::string& name, DType dtype, Stack stack) {
    const Format format = dtype == DType::kInt4Tiles ? Format::kInt4Tiles : Format::kInt8Tiles;
    const int64_t rows = stack.rows();
    const int64_t cols = stack.cols();
    outputs_.push_back({.stored = checkpoint::stored_tiles(name, dtype, {rows, cols}),
                        .unit_count = rows / kTileRows,
                        .unit_bytes = kernels::tile_bytes(format, cols),
                        .make = [stack = std::move(stack), format](int64_t tile, uint8_t* out) {
                          pack_stack_tile(format, stack, tile, out);
                        }});
  }

  Result<void> add_matrix(const std::string& name, Stack stack, MatrixWeights weights) {
    const int64_t rows = stack.rows();
    const bool whole_tiles = stack.is_of_whole_tiles();
    if (kernels::is_ggml_blocks(stack.format())) {
      return Error{ErrorCode::kUnsupported,
                   fmt::format("tensor {} is {}; F32, F16, BF16 and Q8_0 can be packed", name,
                               tensor::dtype_name(kernels::ggml_dtype(stack.format())))};
    }
    if (stack.format() == Format::kQ8_0 && !whole_tiles) {
      return Error{ErrorCode::kUnsupported,
                   fmt::format("tensor {} has {} rows of Q8_0; a multiple of {} can be packed",
                               name, rows, kTileRows)};
    }
    const bool to_bytes = weights == MatrixWeights::kInt8 && whole_tiles;
    if (stack.format() == Format::kQ8_0 || to_bytes) {
      add_tiles(name, DType::kInt8Tiles, std::move(stack));
      return {};
    }
    const int64_t row = kernels::row_bytes(stack.format(), stack.cols());
    outputs_.push_back({.stored = {name, plain_dtype(stack.format()), {rows, stack.cols()}},
                        .unit_count = rows,
                        .unit_bytes = row,
                        .make = [stack = std::move(stack), row](int64_t index, uint8_t* out) {
                          const auto [part, at] = stack.at(index);
                          std::memcpy(out, static_cast<const uint8_t*>(part->data) + at * row,
                                      static_cast<size_t>(row));
                        }});
    return {};
  }

  static void pack_stack_tile(Format format, const Stack& stack, int64_t tile, uint8_t* out) {
    const auto [part, first] = stack.at(tile * kTileRows);
    std::array<int64_t, kTileRows> rows;
    for (int r = 0; r < kTileRows; ++r) rows[r] = first + r < part->rows ? first + r : -1;
    kernels::pack_tile(format, stored(*part), rows.data(), out);
  }

  Result<void> experts(const std::string& prefix) {
    const int inner = config_.expert_intermediate_size;
    const int hidden = config_.hidden_size;
    TRY_ASSIGN(
        const kernels::ExpertWeights weights,
        load_experts(checkpoint_, prefix,
                     {.experts = config_.expert_count, .inner = inner, .hidden = hidden}, keep_));
    for (const kernels::Experts* part : {&weights.gate, &weights.down}) {
      if (part->format != Format::kMxfp4Pairs && part->format != Format::kMxfp4Blocks) {
        return Error{ErrorCode::kUnsupported,
                     prefix + ": only experts in MXFP4 can be packed; these are not"};
      }
    }
    std::vector<float> bias(size_t{2} * config_.expert_count * inner);
    for (int64_t e = 0; e < config_.expert_count; ++e) {
      for (int i = 0; i < inner; ++i) {
        const int64_t to = e * 2 * inner + i / kTileRows * 2 * kTileRows + i % kTileRows;
        const bool both = weights.interleaved();
        bias[to] = both ? weights.gate.bias[e * 2 * inner + weights.gate_row(i)]
                        : weights.gate.bias[e * inner + i];
        bias[to + kTileRows] = both ? weights.gate.bias[e * 2 * inner + weights.up_row(i)]
                                    : weights.up.bias[e * inner + i];
      }
    }
    add_vector(prefix + "gate_up.bias", {config_.expert_count, 2 * inner}, std::move(bias));
    add_experts(prefix + "gate_up.weight", {config_.expert_count, 2 * inner, hidden},
                [weights](int64_t expert, int64_t tile, uint8_t* out) {
                  pack_gate_up(weights, expert, tile, out);
                });
    std::vector<float> down_bias(weights.down.bias,
                                 weights.down.bias + int64_t{config_.expert_count} * hidden);
    add_vector(prefix + "down.bias", {config_.expert_count, hidden}, std::move(down_bias));
    add_experts(prefix + "down.weight", {config_.expert_count, hidden, inner},
                [down = weights.down](int64_t expert, int64_t tile, uint8_t* out) {
                  std::array<int64_t, kTileRows> rows;
                  for (int r = 0; r < kTileRows; ++r) rows[r] = tile * kTileRows + r;
                  kernels::pack_tile(Format::kMxfp4Tiles,
                                     kernels::expert_matrix(down, static_cast<int>(expert)),
                                     rows.data(), out);
                });
    return {};
  }

  // Tiles of gates and of ups take turns.
  static void pack_gate_up(const kernels::ExpertWeights& weights, int64_t expert, int64_t tile,
                           uint8_t* out) {
    const bool is_up = tile % 2 == 1;
    const bool both = weights.interleaved();
    const kernels::Experts& from = is_up && !both ? weights.up : weights.gate;
    std::array<int64_t, kTileRows> rows;
    for (int r = 0; r < kTileRows; ++r) {
      const int i = static_cast<int>(tile / 2) * kTileRows + r;
      rows[r] = !both ? i : is_up ? weights.up_row(i) : weights.gate_row(i);
    }
    kernels::pack_tile(Format::kMxfp4Tiles, kernels::expert_matrix(from, static_cast<int>(expert)),
                       rows.data(), out);
  }

  void add_experts(const std::string& name, const std::vector<int64_t>& shape,
                   std::function<void(int64_t expert, int64_t tile, uint8_t* out)> make) {
    const int64_t tiles = shape[1] / kTileRows;
    outputs_.push_back({.stored = checkpoint::stored_tiles(name, DType::kMxfp4Tiles, shape),
                        .unit_count = shape[0] * tiles,
                        .unit_bytes = kernels::tile_bytes(Format::kMxfp4Tiles, shape[2]),
                        .make = [make = std::move(make), tiles](int64_t unit, uint8_t* out) {
                          make(unit / tiles, unit % tiles, out);
                        }});
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const PackOptions& options_;
  FloatVectors keep_;
  std::vector<Output> outputs_;
};

// Makes and writes the units, a piece at a time, on all workers. Returns the SHA-256 of them all.
Result<std::string> write_outputs(const std::vector<Output>& outputs,
                                  const checkpoint::SizedFile& file, base::ThreadPool& pool,
                                  PackProgress progress) {
  struct Piece {
    const Output* output;
    int64_t first;
    int64_t last;
  };
  std::vector<Piece> pieces;
  int64_t total = 0;
  for (const Output& output : outputs) {
    const int64_t units = std::max<int64_t>(1, kPieceBytes / output.unit_bytes);
    for (int64_t unit = 0; unit < output.unit_count; unit += units) {
      pieces.push_back({&output, unit, std::min(output.unit_count, unit + units)});
    }
    total += output.bytes();
  }
  std::vector<std::vector<uint8_t>> rooms(kPiecesPerReport);
  base::Digest digest(base::Digest::Kind::kSha256);
  std::mutex mutex;
  std::optional<Error> error;
  int64_t done = 0;
  const auto count = static_cast<int64_t>(pieces.size());
  for (int64_t next = 0; next < count; next += kPiecesPerReport) {
    const int64_t now = std::min(kPiecesPerReport, count - next);
    pool.parallel_for(now, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = next + begin; i < next + end; ++i) {
        const Piece& piece = pieces[i];
        const Output& output = *piece.output;
        std::vector<uint8_t>& room = rooms[static_cast<size_t>(i - next)];
        room.resize(static_cast<size_t>((piece.last - piece.first) * output.unit_bytes));
        for (int64_t unit = piece.first; unit < piece.last; ++unit) {
          output.make(unit, room.data() + (unit - piece.first) * output.unit_bytes);
        }
        const Result<void> put = file.write_at(output.offset + piece.first * output.unit_bytes,
                                               room.data(), static_cast<int64_t>(room.size()));
        const std::lock_guard lock(mutex);
        done += static_cast<int64_t>(room.size());
        if (!put.ok() && !error) error = put.error();
      }
    });
    if (error) return *error;
    for (int64_t i = 0; i < now; ++i) {
      digest.update({reinterpret_cast<const char*>(rooms[i].data()), rooms[i].size()});
    }
    if (!progress(done, total)) return Error{ErrorCode::kCancelled, "interrupted"};
  }
  return digest.finish();
}

}  // namespace

std::string_view name_of(kernels::Activations activations) {
  return activations == kernels::Activations::kInt8 ? "int8" : "int16";
}

std::string_view name_of(MatrixWeights weights) {
  return weights == MatrixWeights::kInt8 ? "int8" : "shipped";
}

bool can_be_packed(const ModelConfig& config) {
  if (config.label_count > 0) return false;
  if (config.has_experts()) return config.family->expert_files == families::ExpertFiles::kMxfp4;
  return !config.is_latent() && config.quantization == families::WeightQuantization::kNone;
}

bool can_be_packed(const Checkpoint& checkpoint) {
  // The rows of others' files lie in another order than config.json says of this layout.
  return can_be_packed(checkpoint.config()) &&
         (checkpoint.config().has_experts() ||
          checkpoint.layout() == checkpoint::LayoutKind::kHuggingFace);
}

Result<void> pack_weights(const Checkpoint& checkpoint, const PackOptions& options,
                          const std::string& file, base::ThreadPool& pool, PackProgress progress) {
  if (!can_be_packed(checkpoint)) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: is a {}; models with MXFP4 experts are packed, and dense ones of "
                             "safetensors in Hugging Face's layout, without latent attention or "
                             "a classification head, and not quantized",
                             checkpoint.folder(), checkpoint.config().architecture)};
  }
  Packer packer(checkpoint, options);
  TRY_ASSIGN(std::vector<Output> outputs, packer.outputs());
  // Tiles first: all of them have whole cache lines, so that each begins on one.
  std::stable_partition(outputs.begin(), outputs.end(),
                        [](const Output& output) { return output.bytes() % 64 == 0; });
  std::vector<checkpoint::PlannedTensor> planned;
  for (const Output& output : outputs) planned.push_back(output.stored);
  checkpoint::Metadata metadata = {
      {std::string(checkpoint::kTilesVersionKey), std::string(checkpoint::kTilesVersion)},
      {std::string(checkpoint::kActivationsKey), std::string(name_of(options.activations))},
      {std::string(checkpoint::kSourceKey), options.source},
      {std::string(checkpoint::kFingerprintKey), options.fingerprint},
      {std::string(checkpoint::kWeightsKey), std::string(name_of(options.matrices))},
      {std::string(checkpoint::kSha256Key), std::string(kSha256Digits, '0')}};  // not known yet
  std::string header = checkpoint::safetensors_header(planned, metadata, 64);
  auto offset = static_cast<int64_t>(header.size());
  for (Output& output : outputs) {
    output.offset = offset;
    offset += output.bytes();
  }
  TRY_ASSIGN(const checkpoint::SizedFile sized, checkpoint::SizedFile::create(file, offset));
  TRY_ASSIGN(metadata.back().second, write_outputs(outputs, sized, pool, progress));
  header = checkpoint::safetensors_header(planned, metadata, 64);
  return sized.write_at(0, reinterpret_cast<const uint8_t*>(header.data()),
                        static_cast<int64_t>(header.size()));
}

Result<void> rewrite_activations(const std::string& file, kernels::Activations activations) {
  const auto failed = [&] {
    return Error{ErrorCode::kIo, fmt::format("cannot rewrite the header of {}", file)};
  };
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  uint64_t bytes = 0;
  stream.read(reinterpret_cast<char*>(&bytes), sizeof bytes);
  if (!stream || bytes > checkpoint::kSafetensorsHeaderBytesMax) return failed();
  std::string header(bytes, ' ');
  stream.read(header.data(), static_cast<std::streamsize>(bytes));
  if (!stream) return failed();
  // Both take the same room: JSON allows a space behind the shorter one.
  const std::string key = fmt::format("\"{}\":", checkpoint::kActivationsKey);
  constexpr std::string_view kInt16 = "\"int16\"";
  constexpr std::string_view kInt8 = "\"int8\" ";
  static_assert(kInt16.size() == kInt8.size());
  const size_t at = header.find(key) + key.size();  // npos: before the key, where neither stands
  const std::string_view now = std::string_view(header).substr(std::min(at, header.size()));
  if (!now.starts_with(kInt16) && !now.starts_with(kInt8)) {
    return Error{ErrorCode::kBadCheckpoint,
                 fmt::format("{} has no room for what its activations are", file)};
  }
  const bool int8 = activations == kernels::Activations::kInt8;
  header.replace(at, kInt8.size(), int8 ? kInt8 : kInt16);
  stream.seekp(sizeof bytes);
  stream.write(header.data(), static_cast<std::streamsize>(bytes));
  stream.flush();
  if (!stream) return failed();
  return {};
}

}  // namespace pelton::layers
