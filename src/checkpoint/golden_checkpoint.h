// The random-weight models of the golden data (testdata/golden/README.md), made again from their
// closed formula, byte for byte: a tensor is a function of (seed, tensor name, element). For tests
// and tools; pure but for the files it writes.
//
//   normal(i) = (sum of the four 16-bit lanes of HashStream::at(i) - 131070) / 37837.2265...
//   bf16      = round to nearest even, of float32, of the double
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace pelton::checkpoint {

enum class GoldenCase {
  kTiny,     // 2 layers, hidden 128
  kMid,      // 4 layers, hidden 512
  kOutlier,  // mid, with massive activations
};

Json golden_config(GoldenCase golden);

// The whole model.safetensors: 0.9 MB for tiny, 60 MB for the others.
std::vector<uint8_t> golden_safetensors(GoldenCase golden);

// Makes `folder` and in it config.json, generation_config.json and model.safetensors.
Result<void> write_golden_checkpoint(GoldenCase golden, const std::string& folder);

}  // namespace pelton::checkpoint
