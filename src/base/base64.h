// Base64 (RFC 4648), padded.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pelton::base {

std::string base64(std::string_view bytes);

// Nothing if `text` is not what base64() makes of some bytes.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace pelton::base
