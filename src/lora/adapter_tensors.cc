#include "lora/adapter_tensors.h"

#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/foreign_text.h"

namespace pelton::lora {
namespace {

using checkpoint::shown;
using checkpoint::StoredTensor;

// Cuts it off where it begins so.
bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Cuts off a number and the dot behind it.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto length = static_cast<size_t>(end - text.data());
  if (failure != std::errc{} || number < 0 || length == text.size() || *end != '.') return {};
  if (length > 1 && text[0] == '0') return {};
  text.remove_prefix(length + 1);
  return number;
}

class TensorTable {
 public:
  TensorTable(const families::ModelConfig& base, const std::string& file)
      : base_(base), file_(file) {
    found_.layers.resize(static_cast<size_t>(base.layer_count()));
  }

  Result<void> add(const StoredTensor& tensor) {
    std::string_view name = tensor.name;
    take(name, "base_model.model.");
    take(name, "model.");
    take(name, "language_model.");
    take(name, "model.");
    if (!take(name, "layers.")) return unknown(tensor);
    const std::optional<int> layer = take_number(name);
    if (!layer) return unknown(tensor);
    if (*layer >= base_.layer_count()) {
      return bad(tensor,
                 fmt::format("the base has no layer {}, only {}", *layer, base_.layer_count()));
    }
    TensorPair* const pair = find_pair(*layer, name);
    if (pair == nullptr) return expert_error_ ? bad(tensor, *expert_error_) : unknown(tensor);
    return put(*pair, name, tensor);
  }

  Result<AdapterTensors> finish(std::span<const StoredTensor> tensors) {
    for (const StoredTensor& tensor : tensors) TRY(add(tensor));
    for (size_t layer = 0; layer < found_.layers.size(); ++layer) {
      const LayerTensors& of = found_.layers[layer];
      for (const TensorPair& pair : of.linear) TRY(check_pair(pair));
      for (const TensorPair& pair : of.nested) TRY(check_pair(pair));
      for (const TensorPair& pair : of.stacked) TRY(check_pair(pair));
      for (const auto& list : of.per_expert) TRY(check_all(list));
      for (const auto& list : of.apart) {
        for (const TensorPair& pair : list) TRY(check_pair(pair));
      }
      if (of.nested[0].empty() && !of.nested[1].empty()) {
        return bad(*of.nested[1].a,
                   "experts: a base_layer within nothing; of nested parameters one is missing");
      }
    }
    return std::move(found_);
  }

 private:
  Error bad(const StoredTensor& tensor, const std::string& what) const {
    return Error{ErrorCode::kBadCheckpoint,
                 fmt::format("{}: tensor {}: {}", file_, shown(tensor.name), what)};
  }
  Error unknown(const StoredTensor& tensor) const {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: tensor {} belongs to no module that may have an adapter on {}: "
                             "that are the matrices of attention, of MLPs and of experts",
                             file_, shown(tensor.name), base_.architecture)};
  }

  // Where `name`, behind "layers.N.", belongs; cut to "lora_A.weight". Null: nowhere.
  TensorPair* find_pair(int layer, std::string_view& name) {
    LayerTensors& of = found_.layers[static_cast<size_t>(layer)];
    const bool has_experts = base_.layers[static_cast<size_t>(layer)].has_experts;
    expert_error_.reset();
    for (int i = 0; i < kLinearCount; ++i) {
      const bool is_attention = i <= static_cast<int>(Linear::kO);
      if (is_attention ? base_.is_latent() : has_experts) continue;
      if (take(name, kLinearNames[i]) && take(name, ".")) return &of.linear[i];
    }
    if (!has_experts) return nullptr;
    if (!take(name, "mlp.experts.") && !take(name, "block_sparse_moe.experts.")) return nullptr;
    return find_expert_pair(of, name);
  }

  TensorPair* find_expert_pair(LayerTensors& of, std::string_view& name) {
    // Fused matrices in the order of gpt-oss; that of other families differs.
    const bool fused = base_.glu == families::Glu::kClampedSwiglu;
    if (fused) {
      if (name.starts_with("lora_")) return layout(ExpertLayout::kNested, &of.nested[0]);
      if (take(name, "base_layer.")) {
        return name.starts_with("lora_") ? layout(ExpertLayout::kNested, &of.nested[1]) : nullptr;
      }
      if (take(name, "gate_up_proj.")) return layout(ExpertLayout::kStacked, &of.stacked[0]);
      if (take(name, "down_proj.")) return layout(ExpertLayout::kStacked, &of.stacked[1]);
      if (take(name, "gate_up_projs.")) {
        return of_expert(ExpertLayout::kPerExpert, of.per_expert[0], take_number(name));
      }
      if (take(name, "down_projs.")) {
        return of_expert(ExpertLayout::kPerExpert, of.per_expert[1], take_number(name));
      }
      return nullptr;
    }
    const std::optional<int> expert = take_number(name);
    if (!expert) return nullptr;
    constexpr std::array<std::array<std::string_view, 3>, 2> kNames = {
        {{"gate_proj.", "up_proj.", "down_proj."}, {"w1.", "w3.", "w2."}}};
    for (const auto& names : kNames) {
      for (size_t part = 0; part < names.size(); ++part) {
        if (take(name, names[part])) {
          return of_expert(ExpertLayout::kApart, of.apart[part], expert);
        }
      }
    }
    return nullptr;
  }

  TensorPair* layout(ExpertLayout layout, TensorPair* pair) {
    if (found_.layout != ExpertLayout::kNone && found_.layout != layout) {
      expert_error_ = "experts: the adapter holds tensors of two layouts";
      return nullptr;
    }
    found_.layout = layout;
    return pair;
  }

  TensorPair* of_expert(ExpertLayout kind, std::vector<TensorPair>& list,
                        std::optional<int> expert) {
    if (!expert) return nullptr;
    if (*expert >= base_.expert_count) {
      expert_error_ =
          fmt::format("the base has no expert {}, only {} experts", *expert, base_.expert_count);
      return nullptr;
    }
    if (layout(kind, nullptr); expert_error_) return nullptr;
    list.resize(static_cast<size_t>(base_.expert_count));
    return &list[static_cast<size_t>(*expert)];
  }

  Result<void> put(TensorPair& pair, std::string_view rest, const StoredTensor& tensor) const {
    const bool is_a = rest == "lora_A.weight" || rest == "lora_A.default.weight";
    const bool is_b = rest == "lora_B.weight" || rest == "lora_B.default.weight";
    if (!is_a && !is_b) return unknown(tensor);
    const StoredTensor*& place = is_a ? pair.a : pair.b;
    if (place != nullptr) return bad(tensor, "is there twice, also as " + shown(place->name));
    place = &tensor;
    return {};
  }

  Result<void> check_pair(const TensorPair& pair) const {
    if ((pair.a == nullptr) == (pair.b == nullptr)) return {};
    const StoredTensor& there = pair.a != nullptr ? *pair.a : *pair.b;
    return bad(there, fmt::format("has no {} beside it", pair.a != nullptr ? "lora_B" : "lora_A"));
  }

  // Of a matrix for each expert: those of all or none.
  Result<void> check_all(const std::vector<TensorPair>& list) const {
    const StoredTensor* there = nullptr;
    int missing = 0;
    for (const TensorPair& pair : list) {
      TRY(check_pair(pair));
      if (pair.empty()) ++missing;
      if (pair.a != nullptr) there = pair.a;
    }
    if (there == nullptr || missing == 0) return {};
    return bad(*there, fmt::format("experts: {} of {} have none", missing, list.size()));
  }

  const families::ModelConfig& base_;
  const std::string& file_;
  AdapterTensors found_;
  std::optional<std::string> expert_error_;  // why find_pair gave none, if the name was known
};

}  // namespace

std::string_view layout_words(ExpertLayout layout) {
  switch (layout) {
    case ExpertLayout::kNone:
      return "no adapters of experts";
    case ExpertLayout::kNested:
      return "one tensor for a matrix of all experts (PEFT's target_parameters)";
    case ExpertLayout::kStacked:
      return "one tensor for a matrix of all experts (stacked)";
    case ExpertLayout::kPerExpert:
    case ExpertLayout::kApart:
      break;
  }
  return "tensors of their own for each expert";
}

Result<AdapterTensors> find_adapter_tensors(std::span<const StoredTensor> tensors,
                                            const families::ModelConfig& base,
                                            const std::string& file) {
  return TensorTable(base, file).finish(tensors);
}

}  // namespace pelton::lora
