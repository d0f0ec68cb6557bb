#include "models/device_upload.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "kernels/weight_row.h"
#include "tensor/bits.h"

namespace pelton::models {
namespace {

namespace gpu = kernels::gpu;
using gpu::ExpertPart;
using gpu::Place;
using gpu::RowOrder;

// Packed before it is copied; large enough that copies run at full speed.
constexpr int64_t kPieceBytes = int64_t{64} << 20;

kernels::StoredMatrix stored(const kernels::Matrix& matrix) {
  return {matrix.data, nullptr, matrix.rows, matrix.cols, matrix.format};
}

}  // namespace

DeviceUpload::DeviceUpload(const checkpoint::Checkpoint& checkpoint,
                           const gpu::DeviceLibrary& library, gpu::Session* session,
                           const gpu::ArenaLayout& arena, base::ThreadPool& pool)
    : checkpoint_(checkpoint),
      config_(checkpoint.config()),
      library_(library),
      session_(session),
      arena_(arena),
      pool_(pool) {}

Result<std::vector<float>> DeviceUpload::run() {
  TRY(embedding());
  TRY_ASSIGN(
      const kernels::Matrix head,
      layers::load_matrix(checkpoint_, "lm_head.weight", config_.vocab_size, config_.hidden_size));
  TRY(matrix({head}, RowOrder::kPlain, arena_.head));
  for (int layer = 0; layer < config_.layer_count; ++layer) {
    TRY(attention(layer));
    TRY(experts(layer));
  }
  TRY(vector("model.norm.weight", config_.hidden_size, arena_.norm));
  TRY_ASSIGN(const float* norm,
             layers::load_vector(checkpoint_, "model.norm.weight", config_.hidden_size, keep_));
  return std::vector<float>(norm, norm + config_.hidden_size);
}

Result<void> DeviceUpload::write(const Place& place, int64_t offset, const void* from,
                                 int64_t bytes) {
  CHECK(offset + bytes <= place.bytes, "weights are larger than their place on the device");
  library_.table().write(session_, place.offset + offset, from, bytes);
  return library_.check("uploading weights");
}

Result<void> DeviceUpload::vector(const std::string& name, int64_t count, const Place& place) {
  TRY_ASSIGN(const float* values, layers::load_vector(checkpoint_, name, count, keep_));
  return write(place, 0, values, count * int64_t{sizeof(float)});
}

// Rows one after the other, as bf16.
Result<void> DeviceUpload::embedding() {
  const int64_t hidden = config_.hidden_size;
  TRY_ASSIGN(const kernels::Matrix table,
             layers::load_matrix(checkpoint_, "model.embed_tokens.weight", config_.vocab_size,
                                 config_.hidden_size));
  const int64_t each = std::max<int64_t>(1, kPieceBytes / (2 * hidden));
  for (int64_t first = 0; first < table.rows; first += each) {
    const int64_t count = std::min(each, table.rows - first);
    packed_.resize(static_cast<size_t>(2 * count * hidden));
    auto* const out = reinterpret_cast<uint16_t*>(packed_.data());
    pool_.parallel_for(count, 64, [&](int64_t begin, int64_t end, int) {
      std::vector<float> row(static_cast<size_t>(hidden));
      for (int64_t i = begin; i < end; ++i) {
        kernels::read_weight_row(stored(table), first + i, row.data());
        for (int64_t d = 0; d < hidden; ++d) {
          out[i * hidden + d] = tensor::float_to_bf16(row[static_cast<size_t>(d)]);
        }
      }
    });
    TRY(write(arena_.embedding, 2 * first * hidden, packed_.data(), 2 * count * hidden));
  }
  return {};
}

Result<void> DeviceUpload::matrix(const std::vector<kernels::Matrix>& parts, RowOrder order,
                                  const Place& place) {
  gpu::TiledShape shape{.columns = parts[0].cols, .order = order, .head_size = config_.head_size};
  for (const kernels::Matrix& part : parts) shape.rows += part.rows;
  const auto read_row = [&](int64_t row, float* out) {
    size_t i = 0;
    for (; row >= parts[i].rows; ++i) row -= parts[i].rows;
    kernels::read_weight_row(stored(parts[i]), row, out);
  };
  const int64_t tiles = gpu::tile_count(shape.rows);
  const int64_t tile_bytes = gpu::tiles_bytes(gpu::WeightType::kBf16, shape) / tiles;
  const int64_t each = std::max<int64_t>(1, kPieceBytes / tile_bytes);
  for (int64_t first = 0; first < tiles; first += each) {
    const int64_t count = std::min(each, tiles - first);
    packed_.resize(static_cast<size_t>(count * tile_bytes));
    pool_.parallel_for(count, 1, [&](int64_t begin, int64_t end, int) {
      gpu::pack_bf16_tiles(shape, {first + begin, first + end}, read_row,
                           packed_.data() + begin * tile_bytes);
    });
    TRY(write(place, first * tile_bytes, packed_.data(), count * tile_bytes));
  }
  return {};
}

Result<void> DeviceUpload::attention(int layer) {
  const gpu::LayerPlaces& places = arena_.layers[static_cast<size_t>(layer)];
  const int hidden = config_.hidden_size;
  const int q = config_.head_count * config_.head_size;
  const int kv = config_.kv_head_count * config_.head_size;
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const std::string self = prefix + "self_attn.";
  TRY(vector(prefix + "input_layernorm.weight", hidden, places.attention_norm));
  TRY(vector(self + "sinks", config_.head_count, places.sinks));
  std::vector<kernels::Matrix> parts;
  std::vector<float> bias;
  const auto add = [&](const char* name, int rows) -> Result<void> {
    TRY_ASSIGN(const kernels::Linear linear,
               layers::load_linear(checkpoint_, self + name, rows, hidden, keep_));
    parts.push_back(linear.weight);
    bias.insert(bias.end(), linear.bias, linear.bias + rows);
    return {};
  };
  if (checkpoint_.has(self + "qkv_proj.weight")) {
    TRY(add("qkv_proj", q + 2 * kv));
  } else {
    TRY(add("q_proj", q));
    TRY(add("k_proj", kv));
    TRY(add("v_proj", kv));
  }
  TRY(matrix(parts, RowOrder::kHeads, places.qkv));
  TRY(write(places.qkv_bias, 0, bias.data(),
            static_cast<int64_t>(bias.size()) * int64_t{sizeof(float)}));
  TRY_ASSIGN(const kernels::Linear o,
             layers::load_linear(checkpoint_, self + "o_proj", hidden, q, keep_));
  TRY(matrix({o.weight}, RowOrder::kPlain, places.o));
  return write(places.o_bias, 0, o.bias, hidden * int64_t{sizeof(float)});
}

Result<void> DeviceUpload::experts(int layer) {
  const gpu::LayerPlaces& places = arena_.layers[static_cast<size_t>(layer)];
  const int hidden = config_.hidden_size;
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  TRY(vector(prefix + "post_attention_layernorm.weight", hidden, places.expert_norm));
  TRY_ASSIGN(
      const kernels::Linear router,
      layers::load_linear(checkpoint_, prefix + "mlp.router", config_.expert_count, hidden, keep_));
  TRY(matrix({router.weight}, RowOrder::kPlain, places.router));
  TRY(write(places.router_bias, 0, router.bias, config_.expert_count * int64_t{sizeof(float)}));
  TRY_ASSIGN(
      const kernels::ExpertWeights weights,
      layers::load_experts(
          checkpoint_, prefix + "mlp.experts.",
          {.experts = config_.expert_count, .inner = config_.intermediate_size, .hidden = hidden},
          keep_));
  float gate_up = 1;
  float down = 1;
  TRY(expert_part(weights, ExpertPart::kGateUp, places, gate_up));
  TRY(expert_part(weights, ExpertPart::kDown, places, down));
  library_.table().set_factors(session_, layer, gate_up, down);
  return library_.check("uploading weights");
}

Result<void> DeviceUpload::expert_part(const kernels::ExpertWeights& weights, ExpertPart part,
                                       const gpu::LayerPlaces& places, float& factor) {
  const bool is_down = part == ExpertPart::kDown;
  const gpu::TiledShape shape = gpu::expert_shape(weights, part);
  const int64_t experts = config_.expert_count;
  const int64_t data_bytes = gpu::tiles_bytes(gpu::WeightType::kMxfp4, shape);
  const int64_t scale_bytes = gpu::scales_bytes(shape);
  TRY_ASSIGN(const int shift, gpu::scale_shift(weights, part));
  factor = std::ldexp(1.0f, shift);
  packed_.resize(static_cast<size_t>(experts * data_bytes));
  scales_.resize(static_cast<size_t>(experts * scale_bytes));
  std::mutex mutex;
  std::optional<Error> failed;
  pool_.parallel_for(experts, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t e = begin; e < end; ++e) {
      Result<void> packed =
          gpu::pack_expert(weights, part, static_cast<int>(e), shift,
                           packed_.data() + e * data_bytes, scales_.data() + e * scale_bytes);
      const std::lock_guard lock(mutex);
      if (!packed.ok() && !failed) failed = packed.error();
    }
  });
  if (failed) return *failed;
  std::vector<float> bias(static_cast<size_t>(experts * shape.rows));
  gpu::pack_expert_bias(weights, part, bias.data());
  TRY(write(is_down ? places.down : places.gate_up, 0, packed_.data(), experts * data_bytes));
  TRY(write(is_down ? places.down_scales : places.gate_up_scales, 0, scales_.data(),
            experts * scale_bytes));
  return write(is_down ? places.down_bias : places.gate_up_bias, 0, bias.data(),
               static_cast<int64_t>(bias.size()) * int64_t{sizeof(float)});
}

}  // namespace pelton::models
