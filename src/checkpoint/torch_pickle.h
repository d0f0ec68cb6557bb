// The pickle of a PyTorch state dict, read as data: the fixed subset of opcodes and names that
// torch.save() writes for a dict of tensors (protocol 2). Nothing is executed: a name is one of a
// list and stands for itself, a call is one of three whose result is known, and whatever else there
// is ends in an error that names it. One pass; values, stack and memo are bounded. Pure.
//
//   {"a.weight": tensor}  is, in short,
//   PROTO 2, EMPTY_DICT, MARK, "a.weight", GLOBAL torch._utils _rebuild_tensor_v2,
//   MARK ("storage", FloatStorage, "0", "cpu", 6) TUPLE BINPERSID, 0, (2, 3), (3, 1), False,
//   OrderedDict(), TUPLE, REDUCE, SETITEMS, STOP
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"

namespace pelton::checkpoint {

// A tensor of such a dict: elements from `offset` on of the storage, one behind the other.
struct PickledTensor {
  std::string name;
  std::string storage;  // "0": the archive's entry data/0
  tensor::DType dtype = tensor::DType::kF32;
  std::vector<int64_t> shape;
  uint64_t offset = 0;  // elements
};

inline constexpr size_t kPickleValuesMax = size_t{1} << 18;
inline constexpr size_t kPickleTextBytesMax = 4096;

// In the dict's order. Entries that are no tensors are left out. `path` is for messages. Errors:
// kBadCheckpoint; kUnsupported for other opcodes, names, types and tensors that do not lie in one
// piece.
Result<std::vector<PickledTensor>> read_torch_pickle(std::span<const uint8_t> pickle,
                                                     const std::string& path);

}  // namespace pelton::checkpoint
