#include "cost_model/byte_text.h"

#include <fmt/format.h>

namespace pelton::cost_model {

std::string byte_text(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= int64_t{1} << 30) return fmt::format("{:.1f} GiB", value / (1 << 30));
  if (bytes >= int64_t{1} << 20) return fmt::format("{:.1f} MiB", value / (1 << 20));
  if (bytes >= int64_t{1} << 10) return fmt::format("{:.1f} KiB", value / (1 << 10));
  return fmt::format("{} bytes", bytes);
}

}  // namespace pelton::cost_model
