#include "cluster/registration.h"

#include <gtest/gtest.h>

namespace pelton::cluster {
namespace {

const Registration kOne{.name = "one",
                        .incarnation = "0123",
                        .host = "10.0.0.5",
                        .port = 9101,
                        .pool = "box",
                        .zone = "a"};

TEST(Registration, ComesBackAsItWasWritten) {
  const Result<Registration> got = decode_registration(encode(kOne));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(*got, kOne);
  EXPECT_EQ(worker_key("/p", "one"), "/p/workers/one");
  EXPECT_EQ(name_key("/p", "one"), "/p/names/one");
}

// What a later version adds is passed over; what another schema means is not known.
TEST(Registration, RefusesWhatItCannotUse) {
  const auto field_of = [](std::string_view text) {
    const Result<Registration> got = decode_registration(text);
    return got.ok() ? std::string("taken") : got.error().field;
  };
  EXPECT_EQ(field_of(R"({"schema":1,"name":"a","incarnation":"i","address":"h:1","pool":"p",
                         "rack":7})"),
            "taken");
  EXPECT_EQ(field_of(R"({"schema":2,"name":"a","incarnation":"i","address":"h:1","pool":"p"})"),
            "schema");
  EXPECT_EQ(field_of(R"({"name":"a"})"), "schema");
  EXPECT_EQ(field_of(R"({"schema":1,"name":"","incarnation":"i","address":"h:1","pool":"p"})"),
            "name");
  EXPECT_EQ(field_of(R"({"schema":1,"name":"a","incarnation":"i","pool":"p"})"), "address");
  for (const char* address : {"h", "h:0", "h:70000", "h:-1", ""}) {
    EXPECT_EQ(field_of(std::string(R"({"schema":1,"name":"a","incarnation":"i","pool":"p",)") +
                       R"("address":")" + address + "\"}"),
              "address")
        << address;
  }
  EXPECT_EQ(field_of("[]"), "");
  EXPECT_FALSE(decode_registration(encode(kOne) + std::string(20'000, ' ')).ok());
}

}  // namespace
}  // namespace pelton::cluster
