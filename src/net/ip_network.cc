#include "net/ip_network.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include <arpa/inet.h>
#include <fmt/format.h>

namespace pelton::net {
namespace {

constexpr int kBits = 128;
constexpr int kIpv4Offset = 96;

struct Address {
  std::array<uint8_t, 16> bytes{};
  bool is_ipv4 = false;
};

std::optional<Address> parse_address(std::string_view text) {
  const std::string copy(text);
  Address address;
  if (::inet_pton(AF_INET, copy.c_str(), address.bytes.data() + kIpv4Offset / 8) == 1) {
    address.bytes[10] = address.bytes[11] = 0xFF;
    address.is_ipv4 = true;
    return address;
  }
  if (::inet_pton(AF_INET6, copy.c_str(), address.bytes.data()) == 1) return address;
  return std::nullopt;
}

bool bit_of(const std::array<uint8_t, 16>& bytes, int at) {
  return (bytes[static_cast<size_t>(at / 8)] >> (7 - at % 8) & 1) != 0;
}

}  // namespace

Result<IpNetwork> IpNetwork::parse(std::string_view text) {
  const auto bad = [&](std::string_view why) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'{}' is no range of addresses (10.0.0.0/8, fd00::/8): {}",
                             text.substr(0, 64), why),
                 {}};
  };
  const size_t slash = text.find('/');
  const std::optional<Address> address = parse_address(text.substr(0, slash));
  if (!address) return bad("before '/' stands no address");
  const int offset = address->is_ipv4 ? kIpv4Offset : 0;
  IpNetwork network;
  network.prefix_ = address->bytes;
  network.bits_ = kBits;
  if (slash == std::string_view::npos) return network;
  const std::string_view digits = text.substr(slash + 1);
  int bits = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size();
  if (!is_number || bits < 0 || bits > kBits - offset) {
    return bad(fmt::format("behind '/' stands no number from 0 to {}", kBits - offset));
  }
  network.bits_ = offset + bits;
  for (int at = network.bits_; at < kBits; ++at) {
    if (bit_of(network.prefix_, at)) return bad("bits behind the prefix are set");
  }
  return network;
}

bool IpNetwork::contains(std::string_view text) const {
  const std::optional<Address> address = parse_address(text);
  if (!address) return false;
  for (int at = 0; at < bits_; ++at) {
    if (bit_of(prefix_, at) != bit_of(address->bytes, at)) return false;
  }
  return true;
}

}  // namespace pelton::net
