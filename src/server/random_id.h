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

// An id of somebody else's that may stand in a header and a log line.
bool is_plain_id(std::string_view id);

// The request's own name if it has one.
std::string answer_id(std::string_view prefix, std::string_view request_id, uint64_t draw);

}  // namespace pelton::server
