#include "lora/adapter.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/digest.h"
#include "base/file.h"
#include "checkpoint/foreign_text.h"
#include "lora/adapter_file.h"
#include "tensor/bits.h"
#include "tensor/tensor_view.h"

namespace pelton::lora {
namespace {

using checkpoint::shown;
using checkpoint::StoredTensor;
using kernels::Format;
using tensor::DType;

constexpr int64_t kAlignment = 64;  // of each matrix, a cache line
constexpr int kReadableRank = 256;

int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t element_bytes(Format format) {
  return format == Format::kF32 ? 4 : 2;
}

std::optional<Format> format_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Format::kF32;
    case DType::kF16:
      return Format::kF16;
    case DType::kBf16:
      return Format::kBf16;
    default:
      return std::nullopt;
  }
}

// That of all its tensors, or float32 where they differ.
Format format_of(const ModuleSource& source, const ModuleSource& a_of) {
  std::optional<Format> all;
  for (const std::vector<Strided>* list : {&a_of.a, &source.b}) {
    for (const Strided& strided : *list) {
      if (strided.tensor == nullptr) continue;
      const Format format = *format_of(strided.tensor->dtype);
      if (all && *all != format) return Format::kF32;
      all = format;
    }
  }
  return all.value_or(Format::kF32);
}

template <typename Bits>
Result<void> check_finite(const StoredTensor& tensor, const AdapterFile::Tile& tile, Bits exponent,
                          const std::string& path) {
  const auto count = static_cast<int64_t>(tile.bytes.size() / sizeof(Bits));
  for (int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, tile.bytes.data() + i * static_cast<int64_t>(sizeof(Bits)), sizeof bits);
    if ((bits & exponent) != exponent) continue;
    return Error{ErrorCode::kBadCheckpoint,
                 fmt::format("{}: tensor {}: number {} of {} is not finite (NaN or infinite)", path,
                             shown(tensor.name), tile.first + i,
                             (tensor.end - tensor.begin) / sizeof(Bits))};
  }
  return {};
}

Result<void> check_numbers(const StoredTensor& tensor, const AdapterFile::Tile& tile,
                           const std::string& path) {
  switch (tensor.dtype) {
    case DType::kF32:
      return check_finite<uint32_t>(tensor, tile, 0x7F800000u, path);
    case DType::kF16:
      return check_finite<uint16_t>(tensor, tile, 0x7C00u, path);
    default:
      return check_finite<uint16_t>(tensor, tile, 0x7F80u, path);
  }
}

Result<void> check_type(const StoredTensor& tensor, const std::string& path) {
  if (format_of(tensor.dtype)) return {};
  return Error{ErrorCode::kUnsupported,
               fmt::format("{}: tensor {} is of {}; an adapter's are F32, F16 or BF16", path,
                           shown(tensor.name), tensor::dtype_name(tensor.dtype))};
}

float to_float(const char* at, DType dtype) {
  uint16_t half = 0;
  float whole = 0;
  if (dtype == DType::kF32) {
    std::memcpy(&whole, at, sizeof whole);
    return whole;
  }
  std::memcpy(&half, at, sizeof half);
  return dtype == DType::kF16 ? tensor::f16_to_float(half) : tensor::bf16_to_float(half);
}

// Of column j of B^T, where it goes: halves of a head become neighbours. Of a head of 4: 0 1 2 3
// go to 0 2 1 3.
int64_t neighbour_column(int64_t j, int head_size) {
  const int64_t head = j / head_size * head_size;
  const int64_t i = j - head;
  const int64_t half = head_size / 2;
  return head + (i < half ? 2 * i : 2 * (i - half) + 1);
}

// Where numbers of a tensor go: (rank, columns) of `source`, row by row. head_size: of
// by_neighbours, else 0.
struct Copy {
  std::byte* to = nullptr;
  Strided source;
  int rank = 0;
  int64_t columns = 0;
  Format format = Format::kF32;
  int head_size = 0;
};

// The first column whose number is at or behind `bound`, of a row that begins at `first`.
int64_t column_from(int64_t bound, int64_t first, int64_t stride, int64_t columns) {
  if (bound <= first) return 0;
  return std::min((bound - first + stride - 1) / stride, columns);
}

// What of it lies in numbers [begin, end) of the tensor.
template <typename Element, typename Read>
void copy_elements(const Copy& copy, int64_t begin, int64_t end, const Read& read) {
  const Strided& source = copy.source;
  for (int rho = 0; rho < copy.rank; ++rho) {
    Element* const row = reinterpret_cast<Element*>(copy.to) + rho * copy.columns;
    const int64_t first = source.first + rho * source.rank_stride;
    const int64_t last = column_from(end, first, source.column_stride, copy.columns);
    for (int64_t j = column_from(begin, first, source.column_stride, copy.columns); j < last; ++j) {
      const int64_t at = copy.head_size > 0 ? neighbour_column(j, copy.head_size) : j;
      row[at] = read(first + j * source.column_stride - begin);
    }
  }
}

void copy_tile(const Copy& copy, const AdapterFile::Tile& tile) {
  const char* const from = tile.bytes.data();
  const DType dtype = copy.source.tensor->dtype;
  const auto size = static_cast<int64_t>(tensor::dtype_bytes(dtype));
  const int64_t end = tile.first + static_cast<int64_t>(tile.bytes.size()) / size;
  if (copy.format == Format::kF32) {
    return copy_elements<float>(copy, tile.first, end,
                                [&](int64_t i) { return to_float(from + i * size, dtype); });
  }
  copy_elements<uint16_t>(copy, tile.first, end, [&](int64_t i) {
    uint16_t bits;
    std::memcpy(&bits, from + i * 2, sizeof bits);
    return bits;
  });
}

bool is_attention(const ModuleSource& source) {
  return source.part == Part::kLinear && source.linear <= Linear::kO;
}

}  // namespace

Result<Targets> parse_targets(std::string_view name) {
  for (const Targets targets : {Targets::kAttention, Targets::kExperts, Targets::kAll}) {
    if (name == targets_name(targets)) return targets;
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("'{}' is none of attention, experts, all", name)};
}

std::string_view targets_name(Targets targets) {
  switch (targets) {
    case Targets::kAttention:
      return "attention";
    case Targets::kExperts:
      return "experts";
    default:
      return "all";
  }
}

int64_t adapter_bytes_max(const families::ModelConfig& base, const Limits& limits) {
  int64_t per_rank = 0;  // floats
  int64_t matrices = 0;
  const int64_t hidden = base.hidden_size;
  for (const families::LayerConfig& layer : base.layers) {
    if (limits.targets != Targets::kExperts) {
      per_rank += 4 * hidden + 2 * base.q_size() + 2 * base.kv_size();
      matrices += 2 * 4;
    }
    if (limits.targets == Targets::kAttention) continue;
    const int64_t inner = base.expert_intermediate_size;
    per_rank += layer.has_experts ? base.expert_count * (3 * hidden + 3 * inner)
                                  : 3 * hidden + 3 * int64_t{base.intermediate_size};
    matrices += 2 * 3 * (layer.has_experts ? base.expert_count : 1);
  }
  // Each matrix begins at a cache line, also of one in 16 bits, which takes half of this.
  return per_rank * limits.rank_max * static_cast<int64_t>(sizeof(float)) +
         2 * matrices * kAlignment;
}

// Where a source's a and b begin; those of an up that shares its a: gate's.
struct Adapter::Place {
  Format format = Format::kF32;
  int64_t a = 0;
  int64_t b = 0;
};

// What is known of one before its numbers are read.
struct Adapter::Examined {
  AdapterConfig config;
  AdapterFile file;
  AdapterTensors tensors;
  std::vector<ModuleSource> sources;
};

Result<Adapter::Examined> Adapter::examine(const std::string& folder,
                                           const families::ModelConfig& base,
                                           const Limits& limits) {
  const std::string config_path = folder + "/adapter_config.json";
  TRY_ASSIGN(const std::string text, base::read_file(config_path, kConfigBytesMax));
  TRY_ASSIGN(AdapterConfig config, AdapterConfig::parse(text, config_path));
  for (const TokenId token : config.invocation()) {
    if (token < base.vocab_size) continue;
    return Error{ErrorCode::kBadCheckpoint,
                 fmt::format("{}: alora_invocation_tokens: the base has no token {}, only {}",
                             config_path, token, base.vocab_size)};
  }
  // What has too high a rank is refused for that, not for its size.
  const Limits readable{.rank_max = std::max(limits.rank_max, kReadableRank)};
  TRY_ASSIGN(AdapterFile file, AdapterFile::open(folder, adapter_bytes_max(base, readable)));
  const std::string& path = file.path();
  TRY_ASSIGN(AdapterTensors tensors, find_adapter_tensors(file.tensors(), base, path));
  for (const StoredTensor& tensor : file.tensors()) TRY(check_type(tensor, path));
  TRY_ASSIGN(std::vector<ModuleSource> sources, module_sources(tensors, config, base, path));
  TRY(check_limits(sources, limits, path));
  return Examined{.config = std::move(config),
                  .file = std::move(file),
                  .tensors = std::move(tensors),
                  .sources = std::move(sources)};
}

Result<void> Adapter::check(const std::string& folder, const families::ModelConfig& base,
                            const Limits& limits) {
  TRY(examine(folder, base, limits));
  return {};
}

Result<Adapter> Adapter::load(const std::string& folder, const families::ModelConfig& base,
                              const Limits& limits) {
  TRY_ASSIGN(Examined examined, examine(folder, base, limits));
  AdapterFile& file = examined.file;
  const std::vector<ModuleSource>& sources = examined.sources;
  Adapter adapter;
  adapter.layout_ = examined.tensors.layout;
  adapter.invocation_ = examined.config.invocation();
  adapter.tensor_bytes_ = file.tensor_bytes();
  TRY_ASSIGN(const std::vector<Place> places, adapter.allocate(sources, file.path()));
  TRY(adapter.fill(sources, places, base, file));
  adapter.name(sources);
  return adapter;
}

Result<void> Adapter::check_limits(const std::vector<ModuleSource>& sources, const Limits& limits,
                                   const std::string& file) {
  for (const ModuleSource& source : sources) {
    if (source.rank > limits.rank_max) {
      return Error{ErrorCode::kDoesNotFit,
                   fmt::format("{}: a rank of {} in layer {}; the limit is {} (--max-lora-rank)",
                               file, source.rank, source.layer, limits.rank_max)};
    }
    const Targets needed = is_attention(source) ? Targets::kAttention : Targets::kExperts;
    if (limits.targets != Targets::kAll && limits.targets != needed) {
      return Error{
          ErrorCode::kDoesNotFit,
          fmt::format("{}: adds to {} in layer {}; adapters are allowed on {} alone "
                      "(--lora-targets)",
                      file, targets_name(needed), source.layer, targets_name(limits.targets))};
    }
  }
  return {};
}

Result<std::vector<Adapter::Place>> Adapter::allocate(const std::vector<ModuleSource>& sources,
                                                      const std::string& path) {
  std::vector<Place> places;
  for (size_t i = 0; i < sources.size(); ++i) {
    const ModuleSource& source = sources[i];
    const ModuleSource& a_of = source.shares_a ? sources[i - 1] : source;
    const auto count = static_cast<int64_t>(source.b.size());
    Place place{.format = format_of(source, a_of)};
    const int64_t size = element_bytes(place.format) * count * source.rank;
    if (source.shares_a) {
      place.a = places.back().a;
    } else {
      place.a = bytes_;
      bytes_ += aligned(size * source.in);
    }
    place.b = bytes_;
    bytes_ += aligned(size * source.out);
    places.push_back(place);
  }
  memory_.reset(static_cast<std::byte*>(
      std::aligned_alloc(kAlignment, static_cast<size_t>(std::max(bytes_, kAlignment)))));
  if (memory_ == nullptr) {
    return Error{ErrorCode::kDoesNotFit, fmt::format("{}: no memory for {} bytes", path, bytes_)};
  }
  // What is between matrices, and those of experts that have none.
  std::memset(memory_.get(), 0, static_cast<size_t>(bytes_));
  return places;
}

// Tensor by tensor, as they lie in the file.
Result<void> Adapter::fill(const std::vector<ModuleSource>& sources,
                           const std::vector<Place>& places, const families::ModelConfig& base,
                           AdapterFile& file) {
  const std::vector<StoredTensor>& tensors = file.tensors();
  std::vector<std::vector<Copy>> copies(tensors.size());
  layers_.resize(static_cast<size_t>(base.layer_count()));
  for (size_t i = 0; i < sources.size(); ++i) {
    const ModuleSource& source = sources[i];
    const Place& place = places[i];
    const int64_t size = element_bytes(place.format) * source.rank;
    const auto plan = [&](const std::vector<Strided>& list, int64_t at, int64_t columns, int head) {
      for (size_t e = 0; e < list.size(); ++e) {
        if (list[e].tensor == nullptr) continue;
        copies[static_cast<size_t>(list[e].tensor - tensors.data())].push_back(
            {.to = memory_.get() + at + static_cast<int64_t>(e) * size * columns,
             .source = list[e],
             .rank = source.rank,
             .columns = columns,
             .format = place.format,
             .head_size = head});
      }
    };
    plan(source.a, place.a, source.in, 0);
    plan(source.b, place.b, source.out, source.by_neighbours ? base.head_size : 0);
    add(source, {.a = memory_.get() + place.a,
                 .b = memory_.get() + place.b,
                 .format = place.format,
                 .rank = source.rank,
                 .rows = source.out,
                 .cols = source.in,
                 .scale = source.scale});
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    TRY(file.read(tensors[i], [&](const AdapterFile::Tile& tile) -> Result<void> {
      TRY(check_numbers(tensors[i], tile, file.path()));
      for (const Copy& copy : copies[i]) copy_tile(copy, tile);
      return {};
    }));
  }
  return {};
}

void Adapter::add(const ModuleSource& source, const kernels::LowRank& matrix) {
  Layer& layer = layers_[static_cast<size_t>(source.layer)];
  rank_max_ = std::max(rank_max_, source.rank);
  switch (source.part) {
    case Part::kLinear:
      layer.linear[static_cast<size_t>(source.linear)] = matrix;
      return;
    case Part::kExpertGate:
      layer.experts.gate = matrix;
      break;
    case Part::kExpertUp:
      layer.experts.up = matrix;
      break;
    case Part::kExpertDown:
      layer.experts.down = matrix;
      break;
  }
  adds_to_experts_ = true;
}

void Adapter::name(const std::vector<ModuleSource>& sources) {
  base::Digest digest(base::Digest::Kind::kSha256);
  std::string text;
  const auto format_at = [&](const ModuleSource& source) {
    const Layer& layer = layers_[static_cast<size_t>(source.layer)];
    const kernels::LowRank& matrix = source.part == Part::kLinear
                                         ? layer.linear[static_cast<size_t>(source.linear)]
                                     : source.part == Part::kExpertGate ? layer.experts.gate
                                     : source.part == Part::kExpertUp   ? layer.experts.up
                                                                        : layer.experts.down;
    return static_cast<int>(matrix.format);
  };
  for (const ModuleSource& source : sources) {
    text +=
        fmt::format("{} {} {} {} {} {} {:08x} {}\n", source.layer, static_cast<int>(source.part),
                    static_cast<int>(source.linear), source.in, source.out, source.rank,
                    std::bit_cast<uint32_t>(source.scale), format_at(source));
  }
  for (const TokenId token : invocation_) text += fmt::format("{} ", token);
  digest.update(text);
  digest.update({reinterpret_cast<const char*>(memory_.get()), static_cast<size_t>(bytes_)});
  digest_ = digest.finish();
  identity_ = base::digest_identity(digest_);
}

}  // namespace pelton::lora
