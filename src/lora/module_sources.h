// Where the numbers of each of an adapter's matrices lie in its file, whatever its layout: shapes
// are checked here, against the base and the adapter's ranks. Pure; points into the tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "families/model_config.h"
#include "lora/adapter_config.h"
#include "lora/adapter_tensors.h"

namespace pelton::lora {

// (rank, columns) numbers of a tensor: element (i, j) is number first + i * rank_stride + j *
// column_stride of it. Without a tensor: zeros.
struct Strided {
  const checkpoint::StoredTensor* tensor = nullptr;
  int64_t first = 0;
  int64_t rank_stride = 0;
  int64_t column_stride = 0;
};

// Which matrix of a layer is added to.
enum class Part : uint8_t { kLinear, kExpertGate, kExpertUp, kExpertDown };

// A and B^T of one matrix of the base, or of all experts' such matrices.
struct ModuleSource {
  int layer = 0;
  Part part = Part::kLinear;
  Linear linear = Linear::kQ;  // of kLinear
  int rank = 0;
  float scale = 1.0f;
  int in = 0;
  int out = 0;
  std::vector<Strided> a;      // one, or one for each expert
  std::vector<Strided> b;      // likewise, transposed
  bool shares_a = false;       // of kExpertUp: a is that of the kExpertGate before it
  bool by_neighbours = false;  // B's rows of a head go where a rotation of neighbours has them
};

// By layer, and within one in the order of Linear and Part. Errors: kBadCheckpoint, naming the
// tensor and the shape that it should have; kUnsupported.
Result<std::vector<ModuleSource>> module_sources(const AdapterTensors& tensors,
                                                 const AdapterConfig& config,
                                                 const families::ModelConfig& base,
                                                 const std::string& file);

}  // namespace pelton::lora
