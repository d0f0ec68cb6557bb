// bge-m3's head for lexical search: of each token's last state its weight, relu(w state + b), which
// a sparse vector has under the token's id. It lies beside the model as PyTorch's sparse_linear.pt.
// Source: arXiv 2402.03216, section 3.2. Immutable after loading; any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace pelton::executor {

class SparseHead {
 public:
  // weight: (hidden)
  SparseHead(std::vector<float> weight, float bias) : weight_(std::move(weight)), bias_(bias) {}

  // Of a model's folder; nothing where it has no such file. Errors: kBadCheckpoint, naming file,
  // tensor, expected and found; kUnsupported for files that hold other tensors or types.
  static Result<std::optional<SparseHead>> load(const std::string& folder, int hidden_size);

  // state: float (hidden). What is not finite stays so.
  float weight_of(std::span<const float> state) const;

 private:
  std::vector<float> weight_;
  float bias_;
};

}  // namespace pelton::executor
