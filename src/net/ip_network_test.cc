#include "net/ip_network.h"

#include <gtest/gtest.h>

namespace pelton::net {
namespace {

bool lies_in(std::string_view address, std::string_view range) {
  const Result<IpNetwork> network = IpNetwork::parse(range);
  EXPECT_TRUE(network.ok()) << range;
  return network.ok() && network->contains(address);
}

TEST(IpNetwork, HoldsTheAddressesOfItsPrefix) {
  EXPECT_TRUE(lies_in("10.1.2.3", "10.0.0.0/8"));
  EXPECT_FALSE(lies_in("11.1.2.3", "10.0.0.0/8"));
  EXPECT_TRUE(lies_in("10.1.255.255", "10.1.128.0/17"));
  EXPECT_FALSE(lies_in("10.1.127.255", "10.1.128.0/17"));
  EXPECT_TRUE(lies_in("192.168.7.7", "192.168.7.7"));
  EXPECT_FALSE(lies_in("192.168.7.8", "192.168.7.7/32"));
  EXPECT_TRUE(lies_in("8.8.8.8", "0.0.0.0/0"));
  EXPECT_TRUE(lies_in("fd12::1", "fd00::/8"));
  EXPECT_FALSE(lies_in("fe80::1", "fd00::/8"));
  EXPECT_TRUE(lies_in("::1", "::1"));
  EXPECT_TRUE(lies_in("::ffff:10.0.0.1", "10.0.0.0/8")) << "the same address";
  EXPECT_FALSE(lies_in("::1", "0.0.0.0/0"));
  EXPECT_FALSE(lies_in("worker.example", "0.0.0.0/0"));
}

TEST(IpNetwork, RefusesWhatIsNone) {
  for (const char* text : {"", "/8", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/8x",
                           "10.0.0.1/8", "10.0.0/8", "fd00::/129", "fd00::1/8", "host/8"}) {
    EXPECT_FALSE(IpNetwork::parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace pelton::net
