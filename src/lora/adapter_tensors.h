// An adapter's tensors, found by their names: which of them are A and B of which module of which
// layer, in every layout that adapters are published in. Names alone are looked at; shapes are
// module_sources'. Points into the tensors that it was made from.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/safetensors.h"
#include "families/model_config.h"

namespace pelton::lora {

// Matrices of a layer that are no experts'.
enum class Linear : uint8_t { kQ, kK, kV, kO, kGate, kUp, kDown };
inline constexpr int kLinearCount = 7;
inline constexpr std::array<std::string_view, kLinearCount> kLinearNames = {
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};

struct TensorPair {
  const checkpoint::StoredTensor* a = nullptr;
  const checkpoint::StoredTensor* b = nullptr;

  bool empty() const { return a == nullptr && b == nullptr; }
};

// How an adapter holds those of its experts (names behind "mlp.experts."; E experts, rank r):
enum class ExpertLayout : uint8_t {
  kNone,
  // PEFT's target_parameters, one wrapped parameter within another: lora_A.weight [E*r, in] or
  // [E, r, in], lora_B.weight [out, r*E] or [out, r, E]; those of the inner one behind
  // "base_layer.". Which one gate_up is, shapes say.
  kNested,
  kStacked,    // gate_up_proj.lora_A.weight [E, r, in], .lora_B.weight [E, out, r]; down_proj
               // likewise
  kPerExpert,  // gate_up_projs.{e}.lora_A.weight [r, in], ...; down_projs.{e} likewise
  kApart,      // {e}.gate_proj.lora_A.weight, {e}.up_proj, {e}.down_proj: of bases that have such
};

// Whether one tensor holds a matrix of all experts (vLLM's "3D"); otherwise each has its own.
constexpr bool is_3d(ExpertLayout layout) {
  return layout == ExpertLayout::kNested || layout == ExpertLayout::kStacked;
}
std::string_view layout_words(ExpertLayout layout);

struct LayerTensors {
  std::array<TensorPair, kLinearCount> linear;
  std::array<TensorPair, 2> nested;                   // without base_layer and with it
  std::array<TensorPair, 2> stacked;                  // gate_up, down
  std::array<std::vector<TensorPair>, 2> per_expert;  // (experts) of gate_up and of down, or empty
  std::array<std::vector<TensorPair>, 3> apart;       // (experts) of gate, up and down, or empty
};

struct AdapterTensors {
  std::vector<LayerTensors> layers;
  ExpertLayout layout = ExpertLayout::kNone;
};

// Errors: kUnsupported (a tensor of a module that has no adapter here), kBadCheckpoint (A without
// B, layers that the base lacks, experts in two layouts), naming file and tensor.
Result<AdapterTensors> find_adapter_tensors(std::span<const checkpoint::StoredTensor> tensors,
                                            const families::ModelConfig& base,
                                            const std::string& file);

}  // namespace pelton::lora
