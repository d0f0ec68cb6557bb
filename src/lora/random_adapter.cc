#include "lora/random_adapter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file.h"
#include "checkpoint/hash_stream.h"
#include "checkpoint/safetensors.h"
#include "lora/adapter_config.h"
#include "tensor/bits.h"

namespace pelton::lora {
namespace {

using tensor::DType;

constexpr std::array<std::string_view, 7> kLayoutNames = {
    "peft", "peft-outer", "per-expert", "stacked", "nested-3d", "transposed", "apart"};

struct PartFacts {
  std::string_view name;
  std::string_view module;  // behind "layers.N."
};
constexpr std::array<PartFacts, 8> kParts = {{{"q", "self_attn.q_proj"},
                                              {"k", "self_attn.k_proj"},
                                              {"v", "self_attn.v_proj"},
                                              {"o", "self_attn.o_proj"},
                                              {"gate", "gate_proj"},
                                              {"up", "up_proj"},
                                              {"gate_up", "mlp.experts.gate_up_proj"},
                                              {"down", "down_proj"}}};

double normal(const checkpoint::HashStream& stream, uint64_t index, double deviation) {
  const uint64_t bits = stream.at(index);
  const auto sum = static_cast<int32_t>((bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) +
                                        ((bits >> 32) & 0xFFFF) + (bits >> 48)) -
                   131070;
  const double spread = std::sqrt(4.0 * (65536.0 * 65536.0 - 1.0) / 12.0);
  return static_cast<double>(sum) * (deviation / spread);
}

// The half nearest to a double, even among two: rounding by way of a float would round twice.
uint16_t to_f16(double value) {
  const uint16_t first = tensor::float_to_f16(static_cast<float>(value));
  uint16_t best = first;
  const auto distance = [&](uint16_t bits) { return std::abs(tensor::f16_to_float(bits) - value); };
  for (const int step : {-1, 1}) {
    const auto next = static_cast<uint16_t>(first + step);
    if (((next ^ first) & 0x8000) != 0 || (next & 0x7C00) == 0x7C00) continue;
    const bool is_even = (next & 1) == 0;
    if (distance(next) < distance(best) || (distance(next) == distance(best) && is_even)) {
      best = next;
    }
  }
  return best;
}

void append(std::string& bytes, double value, DType dtype) {
  if (dtype == DType::kF32) {
    const auto number = static_cast<float>(value);
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
    return;
  }
  const uint16_t bits =
      dtype == DType::kF16 ? to_f16(value) : tensor::float_to_bf16(static_cast<float>(value));
  bytes.append(reinterpret_cast<const char*>(&bits), sizeof bits);
}

// A (experts, rank, in) or B (experts, out, rank) by a function of the three indices.
struct Factor {
  int experts = 1;
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<double> values;

  double at(int64_t expert, int64_t row, int64_t column) const {
    return values[static_cast<size_t>((expert * rows + row) * columns + column)];
  }
};

class AdapterWriter {
 public:
  AdapterWriter(const RandomAdapter& adapter, const families::ModelConfig& base,
                WrittenLayout layout)
      : adapter_(adapter), base_(base), layout_(layout) {}

  Result<void> write(const std::string& folder) {
    std::error_code failure;
    std::filesystem::create_directories(folder, failure);
    if (failure) return Error{ErrorCode::kIo, folder + ": " + failure.message()};
    const std::string config = config_text();
    const std::string path = folder + "/adapter_config.json";
    TRY_ASSIGN(const AdapterConfig parsed, AdapterConfig::parse(config, path));
    for (int layer = 0; layer < base_.layer_count(); ++layer) {
      if (!parsed.has_layer(layer)) continue;
      for (const std::string& part : adapter_.parts) TRY(add_part(parsed, layer, part));
    }
    std::sort(tensors_.begin(), tensors_.end(),
              [](const Tensor& a, const Tensor& b) { return a.planned.name < b.planned.name; });
    std::vector<checkpoint::PlannedTensor> planned;
    for (const Tensor& tensor : tensors_) planned.push_back(tensor.planned);
    std::string file = checkpoint::safetensors_header(planned, {{"format", "pt"}}, 8);
    for (const Tensor& tensor : tensors_) file += tensor.bytes;
    TRY(base::write_file(folder + "/adapter_model.safetensors", file));
    return base::write_file(path, config);
  }

 private:
  struct Tensor {
    checkpoint::PlannedTensor planned;
    std::string bytes;
  };

  bool has(std::string_view part) const {
    return std::find(adapter_.parts.begin(), adapter_.parts.end(), part) != adapter_.parts.end();
  }
  bool has_experts(int layer) const { return base_.layers[static_cast<size_t>(layer)].has_experts; }
  bool is_fused() const { return layout_ != WrittenLayout::kApart; }
  bool is_of_experts(int layer, std::string_view part) const {
    return has_experts(layer) && part != "q" && part != "k" && part != "v" && part != "o";
  }

  // Behind "layers.N."; of experts the parameter that holds all of them.
  std::string module_of(int layer, std::string_view part) const {
    for (const PartFacts& facts : kParts) {
      if (facts.name != part) continue;
      if (facts.module.find('.') != std::string_view::npos) return std::string(facts.module);
      return fmt::format("mlp.{}{}", has_experts(layer) ? "experts." : "", facts.module);
    }
    return "";
  }

  std::pair<int64_t, int64_t> widths(int layer, std::string_view part) const {
    const int64_t hidden = base_.hidden_size;
    const int64_t inner =
        has_experts(layer) ? base_.expert_intermediate_size : base_.intermediate_size;
    if (part == "q") return {hidden, base_.q_size()};
    if (part == "k" || part == "v") return {hidden, base_.kv_size()};
    if (part == "o") return {base_.q_size(), hidden};
    if (part == "down") return {inner, hidden};
    return {hidden, part == "gate_up" ? 2 * inner : inner};
  }

  Factor factor(int layer, std::string_view part, char which, int64_t rows, int64_t columns,
                double deviation) const {
    Factor made{.experts = is_of_experts(layer, part) ? base_.expert_count : 1,
                .rows = rows,
                .columns = columns};
    const checkpoint::HashStream stream(adapter_.seed,
                                        fmt::format("layers.{}.{}.{}", layer, part, which));
    made.values.resize(static_cast<size_t>(made.experts * rows * columns));
    for (size_t i = 0; i < made.values.size(); ++i) {
      made.values[i] = which == 'B' && adapter_.zero ? 0.0 : normal(stream, i, deviation);
    }
    return made;
  }

  Result<void> add_part(const AdapterConfig& config, int layer, const std::string& part) {
    const std::string module = module_of(layer, part);
    if (module.empty()) {
      return Error{ErrorCode::kInvalidArgument, "no part of a layer is called '" + part + "'"};
    }
    const std::vector<std::string> path = {fmt::format("model.layers.{}.{}", layer, module)};
    TRY_ASSIGN(const AdapterConfig::Scaling scaling, config.scaling(path));
    const auto spread = adapter_.spread.find(part);
    const auto [a, b] = spread == adapter_.spread.end() ? std::pair(1.0, 1.0) : spread->second;
    const auto [in, out] = widths(layer, part);
    const int64_t rank = scaling.rank;
    const Factor a_matrix =
        factor(layer, part, 'A', rank, in, a / std::sqrt(static_cast<double>(in)));
    const Factor b_matrix =
        factor(layer, part, 'B', out, rank, b / std::sqrt(static_cast<double>(rank)));
    if (!is_of_experts(layer, part)) {
      add(layer, module, 'A', {rank, in},
          [&](int64_t i) { return a_matrix.values[static_cast<size_t>(i)]; });
      add(layer, module, 'B', {out, rank},
          [&](int64_t i) { return b_matrix.values[static_cast<size_t>(i)]; });
      return {};
    }
    add_experts(layer, part, module, a_matrix, b_matrix);
    return {};
  }

  void add_experts(int layer, std::string_view part, const std::string& module, const Factor& a,
                   const Factor& b) {
    const int64_t experts = a.experts;
    const int64_t rank = a.rows;
    const int64_t in = a.columns;
    const int64_t out = b.rows;
    const auto a_plain = [&](int64_t i) { return a.values[static_cast<size_t>(i)]; };
    const auto b_plain = [&](int64_t i) { return b.values[static_cast<size_t>(i)]; };
    if (layout_ == WrittenLayout::kStacked) {
      add(layer, module, 'A', {experts, rank, in}, a_plain);
      add(layer, module, 'B', {experts, out, rank}, b_plain);
      return;
    }
    if (layout_ == WrittenLayout::kPerExpert || layout_ == WrittenLayout::kApart) {
      for (int64_t e = 0; e < experts; ++e) {
        const std::string one = is_fused() ? fmt::format("{}s.{}", module, e)
                                           : fmt::format("mlp.experts.{}.{}_proj", e, part);
        add(layer, one, 'A', {rank, in}, [&](int64_t i) { return a_plain(e * rank * in + i); });
        add(layer, one, 'B', {out, rank}, [&](int64_t i) { return b_plain(e * rank * out + i); });
      }
      return;
    }
    // One parameter within another; in A's place (E*r, columns), in B's (rows, r*E).
    const bool is_inner = has("gate_up") && has("down") &&
                          (part == "gate_up") != (layout_ == WrittenLayout::kPeftOuter);
    const std::string name = is_inner ? "mlp.experts.base_layer" : "mlp.experts";
    const bool exchanged = layout_ == WrittenLayout::kTransposed;
    const int64_t columns = exchanged ? out : in;
    const int64_t rows = exchanged ? in : out;
    const auto first = [&](int64_t i) {  // row e * r + rho
      const int64_t e = i / columns / rank;
      const int64_t rho = i / columns % rank;
      return exchanged ? b.at(e, i % columns, rho) : a.at(e, rho, i % columns);
    };
    const auto second = [&](int64_t i) {  // column rho * E + e
      const int64_t rho = i % (rank * experts) / experts;
      const int64_t row = i / (rank * experts);
      return exchanged ? a.at(i % experts, rho, row) : b.at(i % experts, row, rho);
    };
    const bool flat = layout_ != WrittenLayout::kNested3d;
    using Shape = std::vector<int64_t>;
    add(layer, name, 'A', flat ? Shape{experts * rank, columns} : Shape{experts, rank, columns},
        first);
    add(layer, name, 'B', flat ? Shape{rows, rank * experts} : Shape{rows, rank, experts}, second);
  }

  template <typename Value>
  void add(int layer, const std::string& module, char which, const std::vector<int64_t>& shape,
           const Value& value) {
    Tensor tensor{.planned = {.name = fmt::format("base_model.model.model.layers.{}.{}.lora_{}."
                                                  "weight",
                                                  layer, module, which),
                              .dtype = adapter_.dtype,
                              .shape = shape},
                  .bytes = {}};
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    for (int64_t i = 0; i < count; ++i) append(tensor.bytes, value(i), adapter_.dtype);
    tensors_.push_back(std::move(tensor));
  }

  std::string config_text() const {
    Json::Array modules;
    Json::Array parameters;
    bool experts_by_name = false;
    for (const std::string& part : adapter_.parts) {
      const bool of_attention = part == "q" || part == "k" || part == "v" || part == "o";
      const bool of_experts = !of_attention && base_.has_experts();
      if (of_experts && layout_ == WrittenLayout::kPerExpert) {
        experts_by_name = true;
      } else if (of_experts && is_fused()) {
        parameters.push_back(fmt::format("mlp.experts.{}_proj", part));
      } else {
        modules.push_back(part + "_proj");
      }
    }
    Json config;
    config.set("base_model_name_or_path", adapter_.base).set("bias", "none");
    config.set("fan_in_fan_out", false).set("inference_mode", true);
    config.set("lora_alpha", adapter_.alpha).set("lora_dropout", 0.0);
    config.set("modules_to_save", nullptr).set("peft_type", "LORA");
    config.set("peft_version", layout_ == WrittenLayout::kTransposed ? "0.19.1" : "0.18.1");
    config.set("r", adapter_.rank).set("rank_pattern", adapter_.rank_pattern);
    config.set("alpha_pattern", adapter_.alpha_pattern).set("task_type", "CAUSAL_LM");
    config.set("use_dora", false).set("use_rslora", adapter_.rslora);
    if (experts_by_name) {
      std::string own;
      for (const Json& module : modules) own += (own.empty() ? "" : "|") + module.as_string();
      const std::string experts = R"(.*\.mlp\.experts\.(gate_up_projs|down_projs)\.\d+)";
      config.set("target_modules",
                 own.empty() ? experts : fmt::format(R"(.*\.self_attn\.({})|{})", own, experts));
    } else {
      config.set("target_modules", std::move(modules));
    }
    config.set("target_parameters", parameters.empty() ? Json() : Json(std::move(parameters)));
    Json::Array layers;
    for (const int layer : adapter_.layers) layers.push_back(layer);
    config.set("layers_to_transform", layers.empty() ? Json() : Json(std::move(layers)));
    return config.dump();
  }

  const RandomAdapter& adapter_;
  const families::ModelConfig& base_;
  const WrittenLayout layout_;
  std::vector<Tensor> tensors_;
};

}  // namespace

Result<WrittenLayout> parse_written_layout(std::string_view name) {
  const auto found = std::find(kLayoutNames.begin(), kLayoutNames.end(), name);
  if (found != kLayoutNames.end()) {
    return static_cast<WrittenLayout>(found - kLayoutNames.begin());
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("'{}' is none of {}", name, fmt::join(kLayoutNames, ", "))};
}

Result<RandomAdapter> random_adapter_of(const Json& golden) {
  RandomAdapter adapter{.base = golden.string("base").value_or("base"),
                        .seed = static_cast<uint64_t>(golden.integer("seed").value_or(0)),
                        .parts = {},
                        .rank = static_cast<int>(golden.integer("r").value_or(0)),
                        .alpha = golden.number("lora_alpha").value_or(0),
                        .rslora = golden.boolean("use_rslora").value_or(false)};
  const std::optional<DType> dtype = tensor::dtype_from_name(golden.string("dtype").value_or(""));
  const Json* parts = golden.find("parts");
  if (!dtype || parts == nullptr || !parts->is_array()) {
    return Error{ErrorCode::kInvalidArgument, "case.json lacks dtype or parts"};
  }
  adapter.dtype = *dtype;
  for (const Json& part : parts->as_array()) adapter.parts.push_back(part.as_string());
  if (const Json* layers = golden.find("layers")) {
    for (const Json& layer : layers->as_array()) {
      adapter.layers.push_back(static_cast<int>(layer.as_integer()));
    }
  }
  if (const Json* table = golden.find("rank_pattern")) adapter.rank_pattern = *table;
  if (const Json* table = golden.find("alpha_pattern")) adapter.alpha_pattern = *table;
  if (const Json* spread = golden.find("spread")) {
    for (const Json::Member& member : spread->as_object()) {
      const Json::Array& pair = member.value.as_array();
      adapter.spread[member.key] = {pair[0].as_number(), pair[1].as_number()};
    }
  }
  return adapter;
}

Result<void> write_random_adapter(const RandomAdapter& adapter, const families::ModelConfig& base,
                                  WrittenLayout layout, const std::string& folder) {
  return AdapterWriter(adapter, base, layout).write(folder);
}

}  // namespace pelton::lora
