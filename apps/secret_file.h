// A secret of the operator's, in a file of its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/command_line.h"

namespace pelton::apps {

// The file that `flag` ("--kv-disk-key-file") names, without line ends behind it; empty without the
// flag. Errors: kBadConfig if it cannot be read or holds too little for a secret.
Result<std::string> read_secret_file(const cli::Arguments& arguments, std::string_view flag);

// The same file with a secret a line, of which the first is used and the others only known. Empty
// without the flag. Errors: those, of any line.
Result<std::vector<std::string>> read_secrets_file(const cli::Arguments& arguments,
                                                   std::string_view flag);

}  // namespace pelton::apps
