// The random-weight checkpoints of the golden cases of families other than gpt-oss
// (testdata/golden/README.md), made again from their closed formula, byte for byte: every weight is
// a normal number of (seed, tensor name, element), spread so that logits have a deviation of about
// 2.5 and no part of a layer is negligible. For tests and tools; pure but for the files it writes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace pelton::checkpoint {

// The whole model.safetensors. config: the case's config.json; golden: its case.json {seed}.
// Errors: what parse_model_config finds.
Result<std::vector<uint8_t>> family_golden_safetensors(const Json& config, const Json& golden);

// Makes `folder` and in it the config.json of `case_folder` and model.safetensors.
Result<void> write_family_golden(const std::string& case_folder, const std::string& folder);

}  // namespace pelton::checkpoint
