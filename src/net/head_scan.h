// The strict look at a message's head before the parser sees it. A value owned by its reader.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pelton::net {

struct HttpLimits {
  size_t start_line_bytes_max = 16 * 1024;
  size_t header_bytes_max = 64 * 1024;
  size_t header_count_max = 256;
  size_t body_bytes_max = 32 * 1024 * 1024;
};

struct HeadScan {
  enum class Kind { kIncomplete, kComplete, kBad };
  Kind kind = Kind::kIncomplete;
  size_t head_bytes = 0;  // with the empty line, if kComplete
  int status = 400;       // if kBad
  std::string_view code;
  std::string message;
};

// Looks at each byte once, however slowly they come.
class HeadScanner {
 public:
  // `text` starts with the head, and with the same bytes as at the last call.
  HeadScan scan(std::string_view text, const HttpLimits& limits);

 private:
  size_t position_ = 0;
  size_t line_start_ = 0;
  size_t lines_ = 0;
};

// What is wrong with the first header line of a head that a parser refuses: "header line 2 has no
// colon behind a name"; empty where that is not seen here.
std::string malformed_line(std::string_view head);

}  // namespace pelton::net
