// Files of which only their owner may see something, at no time.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace pelton::base {

// As write_file(), with mode 0600 from the beginning; nothing is left beside it where that fails.
Result<void> write_private_file(const std::string& path, std::string_view bytes);

}  // namespace pelton::base
