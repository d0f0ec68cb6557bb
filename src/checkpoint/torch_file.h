// A file of torch.save(): a zip archive with data.pkl (checkpoint/torch_pickle.h) and the bytes of
// each storage under data/. Pure, over a mapped file; every offset is checked.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/safetensors.h"

namespace pelton::checkpoint {

// The tensors of a state dict, in its order, each inside the file; several may be the same bytes.
// `path` is for messages. Errors: kBadCheckpoint, kUnsupported.
Result<std::vector<StoredTensor>> parse_torch_file(std::span<const uint8_t> file,
                                                   const std::string& path);

}  // namespace pelton::checkpoint
