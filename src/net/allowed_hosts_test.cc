#include "net/allowed_hosts.h"

#include <gtest/gtest.h>

#include "net/ip_address.h"

namespace pelton::net {
namespace {

AllowedHosts hosts(const std::vector<std::string>& names, std::string_view address) {
  return AllowedHosts::parse(names).value().at(address);
}

TEST(AllowedHosts, D4_OnLoopbackOnlyWhatCannotBeRebound) {
  for (const char* const address : {"127.0.0.1", "127.0.0.2", "::1", "localhost"}) {
    const AllowedHosts local = hosts({}, address);
    for (const char* const good :
         {"localhost", "localhost:8000", "LocalHost.", "chat.localhost:80", "127.0.0.1",
          "127.0.0.1:8000", "[::1]", "[::1]:8000", "192.168.1.7:8000", ""}) {
      EXPECT_TRUE(local.allow(good)) << good;
    }
    for (const char* const bad :
         {"attacker.example", "attacker.example:8000", "localhost.attacker.example", "notlocalhost",
          "127.0.0.1.attacker.example", "a b", "localhost,attacker.example", "[::1].a", "x"}) {
      EXPECT_FALSE(local.allow(bad)) << bad;
    }
  }
}

TEST(AllowedHosts, D4_NamesThatAreGiven) {
  const AllowedHosts named = hosts({"Pelton.example.org", "box"}, "127.0.0.1");
  EXPECT_TRUE(named.allow("pelton.example.org:443"));
  EXPECT_TRUE(named.allow("PELTON.example.org."));
  EXPECT_TRUE(named.allow("box"));
  EXPECT_TRUE(named.allow("localhost"));
  EXPECT_FALSE(named.allow("a.pelton.example.org"));
  EXPECT_FALSE(named.allow("example.org"));
  EXPECT_TRUE(hosts({"*"}, "127.0.0.1").allow("attacker.example"));
}

// Beyond loopback any name may be the server's, unless it is said which are.
TEST(AllowedHosts, D4_BeyondLoopback) {
  EXPECT_TRUE(hosts({}, "0.0.0.0").allow("any.example"));
  EXPECT_TRUE(hosts({}, "192.168.1.7").allow("any.example"));
  EXPECT_FALSE(hosts({"box"}, "0.0.0.0").allow("any.example"));
  EXPECT_TRUE(AllowedHosts().allow("any.example"));
}

TEST(AllowedHosts, WhatIsNoNameIsRefused) {
  for (const char* const bad : {"", "a b", "box:80", "http://box", "[::1]", "a/b", "user@box"}) {
    const auto parsed = AllowedHosts::parse({bad});
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_EQ(parsed.error().field, "allowed-host");
  }
}

TEST(AllowedHosts, Loopback) {
  for (const char* const here :
       {"127.0.0.1", "127.9.9.9", "::1", "localhost", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(is_loopback(here)) << here;
  }
  for (const char* const there : {"0.0.0.0", "::", "::ffff:10.0.0.1", "10.0.0.1", "box", ""}) {
    EXPECT_FALSE(is_loopback(there)) << there;
  }
}

TEST(IpAddress, IsNumeric) {
  for (const char* const address :
       {"127.0.0.1", "0.0.0.0", "::", "::ffff:10.0.0.1", "fe80::1%lo"}) {
    EXPECT_TRUE(is_ip_address(address)) << address;
  }
  for (const char* const other : {"", "localhost", "nowhere", "127.1", "1.2.3.4:80", "[::1]"}) {
    EXPECT_FALSE(is_ip_address(other)) << other;
  }
}

}  // namespace
}  // namespace pelton::net
