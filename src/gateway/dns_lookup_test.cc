#include "gateway/dns_lookup.h"

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

// A name as it goes over the wire: its labels behind their lengths.
std::string name(std::initializer_list<std::string> labels) {
  std::string out;
  for (const std::string& label : labels) out += static_cast<char>(label.size()) + label;
  return out + '\0';
}

std::string u16(int value) {
  return {static_cast<char>(value >> 8), static_cast<char>(value & 255)};
}

// An answer of these records to one question of this type.
std::string answer(int type, const std::vector<std::string>& data) {
  const std::string asked = name({"_fleet", "_tcp", "w"}) + u16(type) + u16(1);
  std::string out =
      u16(7) + u16(0x8180) + u16(1) + u16(static_cast<int>(data.size())) + u16(0) + u16(0) + asked;
  for (const std::string& one : data) {
    out += u16(0xC00C) + u16(type) + u16(1) + u16(0) + u16(5) +  // the question's name, 5 seconds
           u16(static_cast<int>(one.size())) + one;
  }
  return out;
}

std::string srv(int priority, int port, std::initializer_list<std::string> host) {
  return u16(priority) + u16(10) + u16(port) + name(host);
}

constexpr int kA = 1;
constexpr int kAaaa = 28;
constexpr int kSrv = 33;

TEST(DnsLookup, ReadsAServicesHostsAndPorts) {
  const auto targets = parse_srv_answer(
      answer(kSrv, {srv(1, 9001, {"one", "w"}), srv(2, 9002, {"two", "w"}), srv(0, 0, {})}));
  ASSERT_TRUE(targets.ok());
  EXPECT_EQ(*targets, (std::vector<SrvTarget>{{"one.w", 9001, 1}, {"two.w", 9002, 2}}))
      << "and passes over the one that says that there is none";
  EXPECT_TRUE(parse_srv_answer(answer(kA, {"\x0A\x01\x02\x03"}))->empty());
}

TEST(DnsLookup, ReadsAddresses) {
  const auto four = parse_address_answer(answer(kA, {"\x0A\x01\x02\x03", "\x0A\x01\x02\x04"}));
  ASSERT_TRUE(four.ok());
  EXPECT_EQ(*four, (std::vector<std::string>{"10.1.2.3", "10.1.2.4"}));
  std::string loopback(16, '\0');
  loopback.back() = 1;
  EXPECT_EQ(*parse_address_answer(answer(kAaaa, {loopback})), std::vector<std::string>{"::1"});
}

TEST(DnsLookup, HalfAnAnswerIsNone) {
  const std::string whole = answer(kSrv, {srv(1, 9001, {"one", "w"})});
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_FALSE(parse_srv_answer(whole.substr(0, bytes)).ok()) << bytes;
  }
  EXPECT_FALSE(parse_srv_answer(answer(kSrv, {u16(1)})).ok());
  EXPECT_FALSE(parse_address_answer(answer(kA, {"\x0A"})).ok());
}

}  // namespace
}  // namespace pelton::gateway
