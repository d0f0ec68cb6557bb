// Foreign bytes as what a name server answers.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "gateway/dns_lookup.h"
#include "net/ip_address.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::gateway;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto targets = parse_srv_answer(bytes); targets.ok()) {
    for (const SrvTarget& target : *targets) CHECK(target.port > 0 && !target.host.empty());
  }
  if (const auto addresses = parse_address_answer(bytes); addresses.ok()) {
    for (const std::string& address : *addresses) CHECK(pelton::net::is_ip_address(address));
  }
  return 0;
}
