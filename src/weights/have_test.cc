#include "weights/have.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/digest.h"

namespace pelton::weights {
namespace {

std::string text(const std::string& have, const std::string& coming = "0000",
                 const std::string& peers = "", const std::string& chunks = "9") {
  return fmt::format(
      R"({{"id":"a","manifest":"{}","chunks":{},"have":"{}","coming":"{}","peers":[{}]}})",
      base::sha256("abc"), chunks, have, coming, peers);
}

std::string field_of(const std::string& json) {
  const Result<Have> have = parse_have(json, 9);
  return have.ok() ? "none" : have.error().field;
}

TEST(Have, BitsAreChunksFromTheLowestOn) {
  const Result<Have> have = parse_have(text("0301", "8000", "\"10.0.0.7:9000\""), 9);
  ASSERT_TRUE(have.ok()) << have.error().message;
  EXPECT_EQ(have->there,
            (std::vector<bool>{true, true, false, false, false, false, false, false, true}));
  EXPECT_TRUE(have->coming[7]);
  EXPECT_EQ(have->peers, std::vector<std::string>{"10.0.0.7:9000"});
  EXPECT_EQ(parse_have(have->to_json(), 9)->there, have->there);
  EXPECT_EQ(have->received, 0) << "older nodes do not say it";
  Have some = *have;
  some.received = 1'234'567;
  EXPECT_EQ(parse_have(some.to_json(), 9)->received, 1'234'567);
  EXPECT_EQ(parse_have(text("all"), 9)->there, std::vector<bool>(9, true));
}

TEST(Have, WhatIsNoneIsNamed) {
  EXPECT_EQ(field_of(text("0301")), "none");
  EXPECT_EQ(field_of(text("0302")), "have");  // a tenth chunk
  EXPECT_EQ(field_of(text("03")), "have");
  EXPECT_EQ(field_of(text("0g01")), "have");
  EXPECT_EQ(field_of(text("0301", "ffff")), "coming");
  EXPECT_EQ(field_of(text("0301", "0000", "", "10")), "chunks");
  EXPECT_EQ(field_of(text("0301", "0000", "\"name:80\"")), "peers[0]");
  EXPECT_EQ(field_of(text("0301", "0000", "\"http://10.0.0.7:80\"")), "peers[0]");
  EXPECT_EQ(field_of(text("0301", "0000", "7")), "peers[0]");
  for (const char* received : {"-1", "1.5", "\"7\"", "null"}) {
    const std::string more = fmt::format("\"received\":{},\"peers\"", received);
    std::string whole = text("0301");
    whole.replace(whole.find("\"peers\""), 7, more);
    EXPECT_EQ(field_of(whole), "received") << received;
  }
  EXPECT_EQ(field_of("{}"), "id");
  EXPECT_EQ(field_of("["), "text");
}

}  // namespace
}  // namespace pelton::weights
