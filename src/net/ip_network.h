// Ranges of addresses as "10.0.0.0/8" or "fd00::/8" (CIDR, RFC 4632); an address alone is a range
// of one. Values; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace pelton::net {

class IpNetwork {
 public:
  // Errors: kInvalidArgument. Bits behind the prefix must be zero: who writes 10.0.0.1/8 means
  // something else.
  static Result<IpNetwork> parse(std::string_view text);

  // `address` as text, without brackets; what is none lies in no range. An IPv4 address that is
  // written as IPv6 (::ffff:10.0.0.1) is that IPv4 address.
  bool contains(std::string_view address) const;

 private:
  using Bytes = std::array<uint8_t, 16>;  // IPv4 as ::ffff:a.b.c.d

  Bytes prefix_{};
  int bits_ = 0;
};

}  // namespace pelton::net
