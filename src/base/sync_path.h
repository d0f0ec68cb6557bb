// What a process has written, on the disk: behind it a loss of power takes nothing back.
#pragma once

#include <string>

#include "base/result.h"

namespace pelton::base {

// A file's bytes; of a folder the names in it. Errors: kIo, with the path.
Result<void> sync_path(const std::string& path);
// The name of a file in its folder, which need not be spelled out: after it was made or renamed.
Result<void> sync_name(const std::string& file);

}  // namespace pelton::base
