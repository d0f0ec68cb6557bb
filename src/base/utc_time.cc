#include "base/utc_time.h"

#include <ctime>

#include <fmt/format.h>

namespace pelton::base {

std::string utc_time(int64_t unix_ms) {
  const std::time_t seconds = static_cast<std::time_t>(unix_ms / 1000);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03}Z", text, unix_ms % 1000);
}

}  // namespace pelton::base
