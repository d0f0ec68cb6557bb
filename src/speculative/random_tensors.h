// Folders of drafters of random weights: a safetensors file and a config.json. Pure but for the
// files.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/safetensors.h"

namespace pelton::speculative {

struct RandomTensor {
  checkpoint::PlannedTensor planned;  // of bf16, or int64: then it holds `numbers`
  double deviation = 0;
  double mean = 0;
  std::vector<int64_t> numbers = {};
};

// Deviations keep the residual stream and the logits at the size that trained heads have.
class RandomTensors {
 public:
  // (rows, cols), of deviation gain / sqrt(cols).
  void matrix(const std::string& name, int64_t rows, int64_t cols, double gain);
  void vector(const std::string& name, int64_t count, double deviation, double mean);
  void norm(const std::string& name, int64_t count);
  // (rows, cols), as it is looked up.
  void table(const std::string& name, int64_t rows, int64_t cols, double deviation);
  void numbers(const std::string& name, std::vector<int64_t> values);

  // Makes `folder` and writes `config` and the tensors. The same seed, the same bytes. Error: kIo.
  Result<void> write(const Json& config, uint64_t seed, const std::string& folder) const;

 private:
  RandomTensor& add(const std::string& name, tensor::DType dtype, std::vector<int64_t> shape);

  std::vector<RandomTensor> tensors_;
};

}  // namespace pelton::speculative
