// A secret of the operator's, in a file of its own.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/command_line.h"

namespace pelton::apps {

// The file that `flag` ("--kv-disk-key-file") names, without line ends behind it; empty without the
// flag. Errors: kBadConfig if it cannot be read or holds too little for a secret.
Result<std::string> read_secret_file(const cli::Arguments& arguments, std::string_view flag);

}  // namespace pelton::apps
