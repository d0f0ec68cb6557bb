// Writes adapters of random numbers in every layout that is read, as PEFT and others write them:
// for tests, golden cases and `pelton synth --lora`. The numbers do not depend on the layout: with
// normal() of checkpoint/golden_checkpoint.h
//   A = normal("layers.{l}.{P}.A", a / sqrt(in)), B = normal("layers.{l}.{P}.B", b / sqrt(r)),
// P one of q k v o gate up down, and of gpt-oss' experts gate_up down. Pure but for the files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "families/model_config.h"
#include "tensor/dtype.h"

namespace pelton::lora {

enum class WrittenLayout : uint8_t {
  kPeft,       // experts as target_parameters, gate_up the inner one
  kPeftOuter,  // the same, down the inner one
  kPerExpert,
  kStacked,
  kNested3d,    // kPeft with three dimensions
  kTransposed,  // kPeft with in and out of experts exchanged, as PEFT 0.19 did
  kApart,       // experts of other families than gpt-oss
};
// "peft", "peft-outer", "per-expert", "stacked", "nested-3d", "transposed", "apart"
Result<WrittenLayout> parse_written_layout(std::string_view name);

struct RandomAdapter {
  std::string base = "base";  // base_model_name_or_path
  uint64_t seed = 0;
  tensor::DType dtype = tensor::DType::kBf16;  // or kF32, kF16
  std::vector<std::string> parts = {"q", "k", "v", "o"};
  int rank = 8;
  double alpha = 16;
  bool rslora = false;
  std::vector<int> layers = {};  // empty: all
  Json rank_pattern = Json(Json::Object{});
  Json alpha_pattern = Json(Json::Object{});
  // Of a part: what A and B are multiplied with; {1, 1} if it is not there.
  std::map<std::string, std::pair<double, double>> spread = {};
  bool zero = false;  // B is 0
};

// What a golden case's case.json says.
Result<RandomAdapter> random_adapter_of(const Json& golden);

// Makes `folder`, and in it adapter_config.json and adapter_model.safetensors.
Result<void> write_random_adapter(const RandomAdapter& adapter, const families::ModelConfig& base,
                                  WrittenLayout layout, const std::string& folder);

}  // namespace pelton::lora
