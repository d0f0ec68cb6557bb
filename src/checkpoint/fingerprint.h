// Tells whether a model's files are still the ones that something was made from, without reading
// them: names, sizes and times of change of the weights and of the texts beside them. Any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace pelton::checkpoint {

// 32 hexadecimal digits. Errors: kIo (a file is gone).
Result<std::string> fingerprint(const Checkpoint& checkpoint);

}  // namespace pelton::checkpoint
