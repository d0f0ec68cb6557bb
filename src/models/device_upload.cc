#include "models/device_upload.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "kernels/weight_row.h"
#include "layers/rotary.h"

namespace pelton::models {
namespace {

using cuda::ExpertPart;
using cuda::Place;
using cuda::RowOrder;

// Packed by all threads before its copying begins: large enough that neither they nor the copies
// wait much at its ends, small enough that the first copy begins soon.
constexpr int64_t kPieceBytes = cuda::kStagedBytes / 2;

}  // namespace

DeviceUpload::DeviceUpload(const checkpoint::Checkpoint& checkpoint,
                           const cuda::DeviceLibrary& library, cuda::Session* session,
                           const cuda::ArenaLayout& arena, base::ThreadPool& pool)
    : checkpoint_(checkpoint),
      config_(checkpoint.config()),
      library_(library),
      session_(session),
      arena_(arena),
      pool_(pool) {}

Result<std::vector<float>> DeviceUpload::run(int positions_max) {
  TRY(embedding());
  TRY_ASSIGN(
      const kernels::Matrix head,
      layers::load_matrix(checkpoint_, "lm_head.weight", config_.vocab_size, config_.hidden_size));
  TRY(matrix({head}, RowOrder::kPlain, arena_.head));
  for (int layer = 0; layer < config_.layer_count(); ++layer) {
    keep_ = layers::FloatVectors();
    TRY(attention(layer));
    TRY(experts(layer));
  }
  TRY(turns(positions_max));
  TRY_ASSIGN(const float* norm,
             layers::load_vector(checkpoint_, "model.norm.weight", config_.hidden_size, keep_));
  TRY(write(norm, config_.hidden_size, arena_.norm));
  library_.table().finish_sending(session_);
  TRY(library_.check("uploading weights"));
  return std::vector<float>(norm, norm + config_.hidden_size);
}

// Starts copying what was staged.
void DeviceUpload::send(const Place& place, int64_t offset, const void* staged, int64_t bytes) {
  CHECK(offset + bytes <= place.bytes, "weights are larger than their place on the device");
  library_.table().send(session_, staged, place.offset + offset, bytes);
}

Result<void> DeviceUpload::write(const float* values, int64_t count, const Place& place) {
  const int64_t bytes = count * int64_t{sizeof(float)};
  void* const staged = library_.table().stage(session_, bytes);
  TRY(library_.check("uploading weights"));
  std::memcpy(staged, values, static_cast<size_t>(bytes));
  send(place, 0, staged, bytes);
  return library_.check("uploading weights");
}

Result<void> DeviceUpload::pack(const Units& units, PackUnits pack_units) {
  const int64_t unit_bytes = units.bytes + units.side_bytes;
  const int64_t each = std::max<int64_t>(1, kPieceBytes / unit_bytes);
  for (int64_t first = 0; first < units.count; first += each) {
    const int64_t count = std::min(each, units.count - first);
    auto* const staged =
        static_cast<uint8_t*>(library_.table().stage(session_, count * unit_bytes));
    TRY(library_.check("uploading weights"));
    uint8_t* const side = staged + count * units.bytes;
    pool_.parallel_for(count, units.grain, [&](int64_t begin, int64_t end, int) {
      pack_units(first + begin, first + end, staged + begin * units.bytes,
                 side + begin * units.side_bytes);
    });
    send(units.place, first * units.bytes, staged, count * units.bytes);
    if (units.side != nullptr) {
      send(*units.side, first * units.side_bytes, side, count * units.side_bytes);
    }
    TRY(library_.check("uploading weights"));
  }
  return {};
}

Result<void> DeviceUpload::vector(const std::string& name, int64_t count, const Place& place) {
  TRY_ASSIGN(const float* values, layers::load_vector(checkpoint_, name, count, keep_));
  return write(values, count, place);
}

// Rows one after the other, as bf16.
Result<void> DeviceUpload::embedding() {
  TRY_ASSIGN(const kernels::Matrix table,
             layers::load_matrix(checkpoint_, "model.embed_tokens.weight", config_.vocab_size,
                                 config_.hidden_size));
  const int64_t bytes = int64_t{2} * config_.hidden_size;
  return pack({.count = table.rows, .grain = 64, .bytes = bytes, .place = arena_.embedding},
              [&](int64_t begin, int64_t end, uint8_t* out, uint8_t*) {
                for (int64_t i = begin; i < end; ++i, out += bytes) {
                  auto* const room = reinterpret_cast<uint16_t*>(out);
                  const uint16_t* const row = cuda::bf16_row(stored(table), i, room);
                  if (row != room) std::memcpy(out, row, static_cast<size_t>(bytes));
                }
              });
}

// Of each position, cosines and then sines.
Result<void> DeviceUpload::turns(int positions_max) {
  const layers::Rotary rotary(config_);
  const int size = config_.head_size;
  return pack({.count = positions_max,
               .grain = 64,
               .bytes = size * int64_t{sizeof(float)},
               .place = arena_.turns},
              [&](int64_t begin, int64_t end, uint8_t* out, uint8_t*) {
                auto* const rows = reinterpret_cast<float*>(out);
                for (int64_t p = begin; p < end; ++p) {
                  rotary.table_row(static_cast<int>(p), rows + (p - begin) * size);
                }
              });
}

Result<void> DeviceUpload::matrix(const std::vector<kernels::Matrix>& parts, RowOrder order,
                                  const Place& place) {
  cuda::TiledShape shape{.columns = parts[0].cols, .order = order, .head_size = config_.head_size};
  for (const kernels::Matrix& part : parts) shape.rows += part.rows;
  const auto row = [&](int64_t number, uint16_t* room) {
    size_t i = 0;
    for (; number >= parts[i].rows; ++i) number -= parts[i].rows;
    return cuda::bf16_row(stored(parts[i]), number, room);
  };
  const int64_t tiles = cuda::tile_count(shape.rows);
  return pack({.count = tiles,
               .grain = 1,
               .bytes = cuda::tiles_bytes(cuda::WeightType::kBf16, shape) / tiles,
               .place = place},
              [&](int64_t begin, int64_t end, uint8_t* out, uint8_t*) {
                cuda::pack_bf16_tiles(shape, {begin, end}, row, out);
              });
}

Result<void> DeviceUpload::attention(int layer) {
  const cuda::LayerPlaces& places = arena_.layers[static_cast<size_t>(layer)];
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
    TRY_ASSIGN(
        const kernels::Linear linear,
        layers::load_linear(checkpoint_, self + name, rows, hidden, layers::Bias::kAdded, keep_));
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
  TRY(write(bias.data(), static_cast<int64_t>(bias.size()), places.qkv_bias));
  TRY_ASSIGN(const kernels::Linear o, layers::load_linear(checkpoint_, self + "o_proj", hidden, q,
                                                          layers::Bias::kAdded, keep_));
  TRY(matrix({o.weight}, RowOrder::kPlain, places.o));
  return write(o.bias, hidden, places.o_bias);
}

Result<void> DeviceUpload::experts(int layer) {
  const cuda::LayerPlaces& places = arena_.layers[static_cast<size_t>(layer)];
  const int hidden = config_.hidden_size;
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  TRY(vector(prefix + "post_attention_layernorm.weight", hidden, places.expert_norm));
  TRY_ASSIGN(const kernels::Linear router,
             layers::load_linear(checkpoint_, prefix + "mlp.router", config_.expert_count, hidden,
                                 layers::Bias::kAdded, keep_));
  TRY(matrix({router.weight}, RowOrder::kPlain, places.router));
  TRY(write(router.bias, config_.expert_count, places.router_bias));
  TRY_ASSIGN(const kernels::ExpertWeights weights,
             layers::load_experts(checkpoint_, prefix + "mlp.experts.",
                                  {.experts = config_.expert_count,
                                   .inner = config_.expert_intermediate_size,
                                   .hidden = hidden},
                                  keep_));
  float gate_up = 1;
  float down = 1;
  for (const ExpertPart part : {ExpertPart::kGateUp, ExpertPart::kDown}) {
    const bool is_down = part == ExpertPart::kDown;
    const Result<void> sent = expert_part(weights, part, places, is_down ? down : gate_up);
    if (sent.ok()) continue;
    return Error{sent.error().code,
                 fmt::format("{}mlp.experts.{}: {}", prefix, is_down ? "down_proj" : "gate_up_proj",
                             sent.error().message)};
  }
  library_.table().set_factors(session_, layer, gate_up, down);
  return library_.check("uploading weights");
}

Result<void> DeviceUpload::expert_part(const kernels::ExpertWeights& weights, ExpertPart part,
                                       const cuda::LayerPlaces& places, float& factor) {
  const bool is_down = part == ExpertPart::kDown;
  const cuda::TiledShape shape = cuda::expert_shape(weights, part);
  TRY_ASSIGN(const int shift, cuda::scale_shift(weights, part, pool_));
  factor = std::ldexp(1.0f, shift);
  const int64_t experts = config_.expert_count;
  const int64_t tiles = cuda::tile_count(shape.rows);  // of an expert
  TRY(pack({.count = experts * tiles,
            .grain = 4,
            .bytes = cuda::tiles_bytes(cuda::WeightType::kMxfp4, shape) / tiles,
            .place = is_down ? places.down : places.gate_up,
            .side_bytes = cuda::scales_bytes(shape) / tiles,
            .side = is_down ? &places.down_scales : &places.gate_up_scales},
           [&](int64_t begin, int64_t end, uint8_t* out, uint8_t* out_scales) {
             const int64_t chunks = cuda::chunk_count(shape.columns);
             while (begin < end) {
               const int64_t expert = begin / tiles;
               const int64_t last = std::min(end, (expert + 1) * tiles);
               cuda::pack_expert(weights, part, static_cast<int>(expert),
                                 {begin - expert * tiles, last - expert * tiles}, shift, out,
                                 out_scales);
               out += (last - begin) * chunks * cuda::kMxfp4ChunkBytes;
               out_scales += (last - begin) * chunks * cuda::kScaleChunkBytes;
               begin = last;
             }
           }));
  return pack({.count = experts,
               .grain = 1,
               .bytes = shape.rows * int64_t{sizeof(float)},
               .place = is_down ? places.down_bias : places.gate_up_bias},
              [&](int64_t begin, int64_t end, uint8_t* out, uint8_t*) {
                auto* const rows = reinterpret_cast<float*>(out);
                for (int64_t e = begin; e < end; ++e) {
                  cuda::pack_expert_bias(weights, part, static_cast<int>(e),
                                         rows + (e - begin) * shape.rows);
                }
              });
}

}  // namespace pelton::models
