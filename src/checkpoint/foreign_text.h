// Names out of somebody else's files, made fit for an error message. Pure.
#pragma once

#include <string>
#include <string_view>

namespace pelton::checkpoint {

// In quotes, escaped (no control characters, valid UTF-8), cut after 120 bytes.
std::string shown(std::string_view foreign);

}  // namespace pelton::checkpoint
