// Identifiers of answers and calls: a prefix and 24 random letters and digits, a pure function of a
// seed and a counter.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pelton::server {

struct IdSource {
  uint64_t seed = 0;
  uint64_t counter = 0;
};

std::string random_id(std::string_view prefix, const IdSource& source);

}  // namespace pelton::server
