// Bytes as errors of this room say them. Pure.
#pragma once

#include <cstdint>
#include <string>

namespace pelton::cost_model {

// "12.8 GiB", "385.0 MiB", "128.0 KiB", "12 bytes".
std::string byte_text(int64_t bytes);

}  // namespace pelton::cost_model
