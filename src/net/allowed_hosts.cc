#include "net/allowed_hosts.h"

#include <algorithm>
#include <optional>

#include <boost/asio/ip/address.hpp>
#include <fmt/format.h>

#include "net/ip_address.h"
#include "net/url.h"

namespace pelton::net {
namespace {

namespace asio = boost::asio;

// Without the dot that ends a name in full.
std::string plain_name(std::string_view host) {
  if (host.ends_with('.')) host.remove_suffix(1);
  std::string name(host);
  for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
  return name;
}

// RFC 6761: names below localhost stand for this machine too, and for no other.
bool is_localhost(std::string_view name) {
  return name == "localhost" || name.ends_with(".localhost");
}

}  // namespace

Result<AllowedHosts> AllowedHosts::parse(const std::vector<std::string>& names) {
  AllowedHosts hosts;
  for (const std::string& name : names) {
    if (name == "*") {
      hosts.any_named_ = true;
      continue;
    }
    const std::optional<std::string_view> host = host_name(name);
    if (!host || host->empty() || *host != name) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--allowed-host wants a host name without a port, such as "
                               "pelton.example.org, or *; not '{}'",
                               name),
                   "allowed-host"};
    }
    hosts.names_.push_back(plain_name(name));
  }
  return hosts;
}

AllowedHosts AllowedHosts::at(std::string_view address) const {
  AllowedHosts hosts = *this;
  hosts.any_ = any_named_ || (names_.empty() && !is_loopback(address));
  return hosts;
}

bool AllowedHosts::allow(std::string_view host) const {
  if (any_ || host.empty()) return true;
  const std::optional<std::string_view> well_formed = host_name(host);
  if (!well_formed) return false;
  const std::string name = plain_name(*well_formed);
  return is_localhost(name) || is_ip_address(name) ||
         std::find(names_.begin(), names_.end(), name) != names_.end();
}

bool is_loopback(std::string_view address) {
  const std::string name = plain_name(address);
  boost::system::error_code error;
  const auto parsed = asio::ip::make_address(name, error);
  if (error) return is_localhost(name);
  if (!parsed.is_v6() || !parsed.to_v6().is_v4_mapped()) return parsed.is_loopback();
  return asio::ip::make_address_v4(asio::ip::v4_mapped, parsed.to_v6()).is_loopback();
}

}  // namespace pelton::net
