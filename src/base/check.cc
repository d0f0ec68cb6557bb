#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace pelton::base {

void check_failed(const char* condition, const char* file, int line, std::string_view message) {
  std::fprintf(stderr, "pelton: bug: %s:%d: CHECK(%s) failed%s%.*s\n", file, line, condition,
               message.empty() ? "" : ": ", static_cast<int>(message.size()), message.data());
  std::fflush(stderr);
  std::abort();
}

}  // namespace pelton::base
