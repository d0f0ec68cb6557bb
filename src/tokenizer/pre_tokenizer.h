// Understands the "pre_tokenizer" of a tokenizer.json: which patterns cut text into pieces.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace pelton::tokenizer {

// `pre_tokenizer` may be null (absent). Errors name `name`, the file, and the field:
// kBadCheckpoint, kUnsupported for kinds that byte-level BPE models do not use.
Result<std::vector<std::string>> read_split_patterns(const Json* pre_tokenizer,
                                                     const std::string& name);

}  // namespace pelton::tokenizer
