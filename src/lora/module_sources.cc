#include "lora/module_sources.h"

#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/foreign_text.h"
#include "tensor/tensor_view.h"

namespace pelton::lora {
namespace {

using checkpoint::shown;
using checkpoint::StoredTensor;
using Shape = std::vector<int64_t>;

// A fused parameter of gpt-oss' experts.
enum class Fused : uint8_t { kGateUp, kDown };
constexpr std::array<std::string_view, 2> kFusedNames = {"gate_up_proj", "down_proj"};

struct Widths {
  int in = 0;
  int out = 0;
};

// What of a nested tensor's shapes does not depend on the rank.
struct NestedWidths {
  int64_t a = 0;  // columns of A
  int64_t b = 0;  // rows of B

  bool operator==(const NestedWidths&) const = default;
};

class SourceList {
 public:
  SourceList(const AdapterTensors& tensors, const AdapterConfig& config,
             const families::ModelConfig& base, const std::string& file)
      : tensors_(tensors), config_(config), base_(base), file_(file) {}

  Result<std::vector<ModuleSource>> list() {
    TRY(config_.check_layers(base_.layer_count()));
    if (tensors_.layout == ExpertLayout::kNested) TRY(find_orientation());
    for (layer_ = 0; layer_ < base_.layer_count(); ++layer_) {
      const LayerTensors& of = tensors_.layers[static_cast<size_t>(layer_)];
      for (int i = 0; i < kLinearCount; ++i) {
        if (!of.linear[i].empty()) TRY(add_linear(static_cast<Linear>(i), of.linear[i]));
      }
      TRY(add_experts(of));
    }
    if (sources_.empty()) {
      return Error{ErrorCode::kBadCheckpoint, file_ + ": holds no tensor of an adapter"};
    }
    return std::move(sources_);
  }

 private:
  Error bad(const StoredTensor& tensor, const std::string& what) const {
    return Error{ErrorCode::kBadCheckpoint,
                 fmt::format("{}: tensor {}: {}", file_, shown(tensor.name), what)};
  }

  Result<void> want(const StoredTensor& tensor, const Shape& shape) const {
    if (tensor.shape == shape) return {};
    return bad(tensor, fmt::format("has the shape {}, but rank and base ask for {}",
                                   tensor::shape_text(tensor.shape), tensor::shape_text(shape)));
  }

  Result<AdapterConfig::Scaling> scaling(const std::vector<std::string>& paths,
                                         const StoredTensor& tensor) const {
    if (!config_.has_layer(layer_)) {
      return bad(tensor, fmt::format("layers_to_transform does not have layer {}", layer_));
    }
    TRY(check_targeted(paths, tensor));
    return config_.scaling(paths);
  }

  // By its paths in the model, and by the one that its file has.
  Result<void> check_targeted(std::vector<std::string> paths, const StoredTensor& tensor) const {
    constexpr std::string_view kPrefix = "base_model.model.";
    constexpr std::string_view kInner = ".base_layer";
    std::string own = tensor.name.substr(0, tensor.name.find(".lora_"));
    if (own.starts_with(kPrefix)) own.erase(0, kPrefix.size());
    if (own.ends_with(kInner)) own.resize(own.size() - kInner.size());
    paths.push_back(std::move(own));
    const bool is_expert = paths.front().find(".mlp.experts.") != std::string::npos;
    const bool is_parameter = is_expert && tensors_.layout != ExpertLayout::kApart;
    TRY_ASSIGN(const std::optional<std::string> why, config_.contradiction(paths, is_parameter));
    if (why) return bad(tensor, fmt::format("its module, {}, {}", paths.front(), *why));
    return {};
  }

  std::string path(std::string_view module) const {
    return fmt::format("model.layers.{}.{}", layer_, module);
  }

  // --- matrices that are no experts' ---

  Widths widths(Linear linear) const {
    const int hidden = base_.hidden_size;
    switch (linear) {
      case Linear::kQ:
        return {hidden, base_.q_size()};
      case Linear::kK:
      case Linear::kV:
        return {hidden, base_.kv_size()};
      case Linear::kO:
        return {base_.q_size(), hidden};
      case Linear::kDown:
        return {base_.intermediate_size, hidden};
      default:
        return {hidden, base_.intermediate_size};
    }
  }

  Result<void> add_linear(Linear linear, const TensorPair& pair) {
    const Widths size = widths(linear);
    TRY_ASSIGN(const AdapterConfig::Scaling scaled,
               scaling({path(kLinearNames[static_cast<size_t>(linear)])}, *pair.a));
    TRY(want(*pair.a, {scaled.rank, size.in}));
    TRY(want(*pair.b, {size.out, scaled.rank}));
    const bool rotates = linear == Linear::kQ || linear == Linear::kK;
    const bool neighbours = base_.rope.pairs == families::RopePairs::kNeighbours;
    if (rotates && neighbours && base_.rotary_part > 0) {
      return Error{ErrorCode::kUnsupported,
                   fmt::format("{}: tensor {}: this base rotates a part of each head, neighbours "
                               "together; its adapters are not known",
                               file_, shown(pair.a->name))};
    }
    sources_.push_back({.layer = layer_,
                        .part = Part::kLinear,
                        .linear = linear,
                        .rank = scaled.rank,
                        .scale = scaled.scale,
                        .in = size.in,
                        .out = size.out,
                        .a = {plain_a(*pair.a, size.in)},
                        .b = {plain_b(*pair.b, scaled.rank)},
                        .by_neighbours = rotates && neighbours});
    return {};
  }

  // [r, in] and [out, r]
  static Strided plain_a(const StoredTensor& tensor, int in) { return {&tensor, 0, in, 1}; }
  static Strided plain_b(const StoredTensor& tensor, int rank) { return {&tensor, 0, 1, rank}; }

  // --- experts ---

  Widths widths(Fused fused) const {
    const int inner = base_.expert_intermediate_size;
    if (fused == Fused::kGateUp) return {base_.hidden_size, 2 * inner};
    return {inner, base_.hidden_size};
  }

  Result<void> add_experts(const LayerTensors& of) {
    switch (tensors_.layout) {
      case ExpertLayout::kNested:
        return add_nested(of);
      case ExpertLayout::kStacked:
        for (const Fused fused : {Fused::kGateUp, Fused::kDown}) {
          TRY(add_stacked(fused, of.stacked[static_cast<size_t>(fused)]));
        }
        return {};
      case ExpertLayout::kPerExpert:
        for (const Fused fused : {Fused::kGateUp, Fused::kDown}) {
          TRY(add_per_expert(fused, of.per_expert[static_cast<size_t>(fused)]));
        }
        return {};
      case ExpertLayout::kApart:
        return add_apart(of);
      default:
        return {};
    }
  }

  // Both are in one tensor: gate's rows are the even ones of B, up's the odd ones.
  void push_fused(Fused fused, const AdapterConfig::Scaling& scaled, std::vector<Strided> a,
                  std::vector<Strided> b) {
    const Widths size = widths(fused);
    ModuleSource source{.layer = layer_,
                        .part = Part::kExpertDown,
                        .rank = scaled.rank,
                        .scale = scaled.scale,
                        .in = size.in,
                        .out = size.out,
                        .a = std::move(a),
                        .b = std::move(b)};
    if (fused == Fused::kDown) {
      sources_.push_back(std::move(source));
      return;
    }
    source.part = Part::kExpertGate;
    source.out = size.out / 2;
    for (Strided& of : source.b) of.column_stride *= 2;
    ModuleSource up = source;
    up.part = Part::kExpertUp;
    up.shares_a = true;
    up.a.clear();
    for (Strided& of : up.b) of.first += of.column_stride / 2;
    sources_.push_back(std::move(source));
    sources_.push_back(std::move(up));
  }

  Result<void> add_stacked(Fused fused, const TensorPair& pair) {
    if (pair.empty()) return {};
    const Widths size = widths(fused);
    const int experts = base_.expert_count;
    TRY_ASSIGN(const AdapterConfig::Scaling scaled, scaling({fused_path(fused)}, *pair.a));
    const int64_t rank = scaled.rank;
    TRY(want(*pair.a, {experts, rank, size.in}));
    TRY(want(*pair.b, {experts, size.out, rank}));
    std::vector<Strided> a;
    std::vector<Strided> b;
    for (int64_t e = 0; e < experts; ++e) {
      a.push_back({pair.a, e * rank * size.in, size.in, 1});
      b.push_back({pair.b, e * rank * size.out, 1, rank});
    }
    push_fused(fused, scaled, std::move(a), std::move(b));
    return {};
  }

  Result<void> add_per_expert(Fused fused, const std::vector<TensorPair>& pairs) {
    if (pairs.empty()) return {};
    const Widths size = widths(fused);
    std::optional<AdapterConfig::Scaling> all;
    std::vector<Strided> a;
    std::vector<Strided> b;
    for (size_t e = 0; e < pairs.size(); ++e) {
      const std::string own =
          path(fmt::format("mlp.experts.{}s.{}", kFusedNames[static_cast<size_t>(fused)], e));
      TRY_ASSIGN(const AdapterConfig::Scaling scaled,
                 scaling({own, fused_path(fused)}, *pairs[e].a));
      TRY(same_for_all(all, scaled, *pairs[e].a));
      TRY(want(*pairs[e].a, {scaled.rank, size.in}));
      TRY(want(*pairs[e].b, {size.out, scaled.rank}));
      a.push_back(plain_a(*pairs[e].a, size.in));
      b.push_back(plain_b(*pairs[e].b, scaled.rank));
    }
    push_fused(fused, *all, std::move(a), std::move(b));
    return {};
  }

  Result<void> same_for_all(std::optional<AdapterConfig::Scaling>& all,
                            const AdapterConfig::Scaling& scaled,
                            const StoredTensor& tensor) const {
    if (!all) all = scaled;
    if (all->rank == scaled.rank && all->scale == scaled.scale) return {};
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: tensor {}: experts of one layer differ in rank or alpha", file_,
                             shown(tensor.name))};
  }

  Result<void> add_apart(const LayerTensors& of) {
    const int hidden = base_.hidden_size;
    const int inner = base_.expert_intermediate_size;
    constexpr std::array<Part, 3> kParts = {Part::kExpertGate, Part::kExpertUp, Part::kExpertDown};
    for (size_t p = 0; p < kParts.size(); ++p) {
      const std::vector<TensorPair>& pairs = of.apart[p];
      if (pairs.empty()) continue;
      const bool is_down = kParts[p] == Part::kExpertDown;
      ModuleSource source{.layer = layer_,
                          .part = kParts[p],
                          .in = is_down ? inner : hidden,
                          .out = is_down ? hidden : inner};
      std::optional<AdapterConfig::Scaling> all;
      for (const TensorPair& pair : pairs) {
        source.a.emplace_back();
        source.b.emplace_back();
        if (pair.empty()) continue;
        TRY_ASSIGN(const AdapterConfig::Scaling scaled, scaling({module_path(*pair.a)}, *pair.a));
        TRY(same_for_all(all, scaled, *pair.a));
        TRY(want(*pair.a, {scaled.rank, source.in}));
        TRY(want(*pair.b, {source.out, scaled.rank}));
        source.a.back() = plain_a(*pair.a, source.in);
        source.b.back() = plain_b(*pair.b, scaled.rank);
      }
      source.rank = all->rank;
      source.scale = all->scale;
      sources_.push_back(std::move(source));
    }
    return {};
  }

  // "base_model.model.model.layers.0.X.lora_A.weight" -> "model.layers.0.X"
  std::string module_path(const StoredTensor& tensor) const {
    const std::string start = fmt::format("layers.{}.", layer_);
    const size_t begin = tensor.name.find(start) + start.size();
    return path(tensor.name.substr(begin, tensor.name.find(".lora_A") - begin));
  }

  std::string fused_path(Fused fused) const {
    return path(fmt::format("mlp.experts.{}", kFusedNames[static_cast<size_t>(fused)]));
  }

  // --- nested parameters: which is which, and whether in and out are exchanged ---

  NestedWidths nested_widths(Fused fused, bool exchanged) const {
    const Widths size = widths(fused);
    return exchanged ? NestedWidths{size.out, size.in} : NestedWidths{size.in, size.out};
  }

  // Which parameter it is, if in and out are so; none fits: nothing.
  std::optional<Fused> fitting(const TensorPair& pair, bool exchanged) const {
    const Shape& a = pair.a->shape;
    const Shape& b = pair.b->shape;
    const bool flat = a.size() == 2 && b.size() == 2;
    if (!flat && (a.size() != 3 || b.size() != 3)) return std::nullopt;
    for (const Fused fused : {Fused::kGateUp, Fused::kDown}) {
      if (NestedWidths{a.back(), b.front()} == nested_widths(fused, exchanged)) return fused;
    }
    return std::nullopt;
  }

  // All of the adapter's layers are of one orientation. Where every shape fits both (gate_up is not
  // there, and an expert is as wide within as without) the version that wrote them decides.
  Result<void> find_orientation() {
    bool fits[2] = {true, true};
    const StoredTensor* misfit = nullptr;
    for (const LayerTensors& of : tensors_.layers) {
      for (const bool exchanged : {false, true}) {
        std::optional<Fused> found[2];
        for (size_t depth = 0; depth < 2; ++depth) {
          if (of.nested[depth].empty()) continue;
          found[depth] = fitting(of.nested[depth], exchanged);
          const bool twice = depth == 1 && found[0] == found[1];
          if (found[depth] && !twice) continue;
          if (fits[exchanged] && !fits[!exchanged]) misfit = of.nested[depth].a;
          fits[exchanged] = false;
        }
      }
      if (!fits[0] && !fits[1]) {
        const TensorPair& pair = of.nested[0].empty() ? of.nested[1] : of.nested[0];
        return misfit_error(misfit != nullptr ? *misfit : *pair.a);
      }
    }
    exchanged_ = !fits[0] || (fits[1] && config_.may_exchange_in_and_out());
    return {};
  }

  Error misfit_error(const StoredTensor& tensor) const {
    const Widths up = widths(Fused::kGateUp);
    const Widths down = widths(Fused::kDown);
    return bad(tensor,
               fmt::format("experts: the shapes of the adapter fit neither gate_up_proj ({} to {}) "
                           "and down_proj ({} to {}) of {} experts nor these with in and out "
                           "exchanged; this one is {}",
                           up.in, up.out, down.in, down.out, base_.expert_count,
                           tensor::shape_text(tensor.shape)));
  }

  Result<void> add_nested(const LayerTensors& of) {
    for (const Fused wanted : {Fused::kGateUp, Fused::kDown}) {
      for (const TensorPair& pair : of.nested) {
        if (!pair.empty() && fitting(pair, exchanged_) == wanted) {
          TRY(add_nested_pair(wanted, pair));
        }
      }
    }
    return {};
  }

  // Of two experts and rank 2, rows of A: expert 0's two, then expert 1's. Columns of B: rank 0 of
  // both experts, then rank 1 of both. As [E, r, in] and [out, r, E] they lie just so, too.
  Result<void> add_nested_pair(Fused fused, const TensorPair& pair) {
    const int64_t experts = base_.expert_count;
    const NestedWidths size = nested_widths(fused, exchanged_);
    TRY_ASSIGN(const AdapterConfig::Scaling scaled, scaling({fused_path(fused)}, *pair.a));
    const int64_t rank = scaled.rank;
    const bool flat = pair.a->shape.size() == 2;
    TRY(want_experts(*pair.a, flat ? Shape{experts * rank, size.a} : Shape{experts, rank, size.a}));
    TRY(want_experts(*pair.b, flat ? Shape{size.b, rank * experts} : Shape{size.b, rank, experts}));
    std::vector<Strided> a;
    std::vector<Strided> b;
    for (int64_t e = 0; e < experts; ++e) {
      a.push_back({pair.a, e * rank * size.a, size.a, 1});
      b.push_back({pair.b, e, experts, rank * experts});
    }
    // Exchanged, B_e is what lies in A's place, and A_e what lies in B's.
    if (exchanged_) std::swap(a, b);
    push_fused(fused, scaled, std::move(a), std::move(b));
    return {};
  }

  Result<void> want_experts(const StoredTensor& tensor, const Shape& shape) const {
    if (tensor.shape == shape) return {};
    return bad(tensor, fmt::format("experts: has the shape {}, but rank and {} experts ask for {}",
                                   tensor::shape_text(tensor.shape), base_.expert_count,
                                   tensor::shape_text(shape)));
  }

  const AdapterTensors& tensors_;
  const AdapterConfig& config_;
  const families::ModelConfig& base_;
  const std::string& file_;
  int layer_ = 0;
  bool exchanged_ = false;
  std::vector<ModuleSource> sources_;
};

}  // namespace

Result<std::vector<ModuleSource>> module_sources(const AdapterTensors& tensors,
                                                 const AdapterConfig& config,
                                                 const families::ModelConfig& base,
                                                 const std::string& file) {
  return SourceList(tensors, config, base, file).list();
}

}  // namespace pelton::lora
