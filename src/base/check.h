// CHECK ends the process when our own code is wrong. Always on, in release builds too; never for
// bad input, which is a Result.
#pragma once

#include <string_view>

namespace pelton::base {

[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               std::string_view message = {});

}  // namespace pelton::base

#define CHECK(condition, ...)                                                                  \
  do {                                                                                         \
    if (!(condition)) [[unlikely]]                                                             \
      ::pelton::base::check_failed(#condition, __FILE__, __LINE__ __VA_OPT__(, ) __VA_ARGS__); \
  } while (false)
