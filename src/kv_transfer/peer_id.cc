#include "kv_transfer/peer_id.h"

#include <fmt/format.h>

#include "base/digest.h"

namespace pelton::kv_transfer {

std::string peer_id(std::string_view drawn, const PeerLayout& layout) {
  constexpr size_t kDigits = 16;
  std::string text;
  for (const auto& [name, value] : layout) text += fmt::format("{}={}\n", name, value);
  return fmt::format("{}.{}", drawn, base::sha256(text).substr(0, kDigits));
}

std::string_view layout_of(std::string_view id) {
  const size_t dot = id.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : id.substr(dot + 1);
}

}  // namespace pelton::kv_transfer
