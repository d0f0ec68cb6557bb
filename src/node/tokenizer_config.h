// tokenizer_config.json, read by those who want to know of it: which tokens begin a prompt
// (model_tokenizer), which chat template it has (model_template). Pure but for the file.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace pelton::node {

// Of `folder`; nothing: there is none. Errors: kIo, kBadCheckpoint naming the file.
Result<std::optional<Json>> read_tokenizer_config(const std::string& folder);

}  // namespace pelton::node
