#include "net/query_check.h"

#include <string>

#include <gtest/gtest.h>

namespace pelton::net {
namespace {

TEST(QueryCheck, WhatIsKnownComesOnce) {
  for (const char* query : {"", "tenant=a", "tenant=", "model=m&tenant=a"}) {
    EXPECT_TRUE(check_query(query, {"tenant", "model"}).ok()) << query;
  }
  const Result<void> unknown = check_query("tenant=a&wait=1", {"tenant", "model"});
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().field, "wait");
  EXPECT_EQ(unknown.error().message,
            "there is no query parameter 'wait' here; known: tenant, model");
  EXPECT_EQ(check_query("wait", {}).error().message, "there is no query parameter 'wait' here");
}

// One of two values would be obeyed, and 200 say that both were.
TEST(QueryCheck, ANameThatComesTwiceIsRefused) {
  for (const char* query :
       {"tenant=a&tenant=b", "tenant=a&tenant=a", "tenant&model=m&tenant", "tenant=a&te%6Eant=b"}) {
    const Result<void> twice = check_query(query, {"tenant", "model"});
    ASSERT_FALSE(twice.ok()) << query;
    EXPECT_EQ(twice.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(twice.error().field, "tenant");
    EXPECT_EQ(twice.error().message, "'tenant' is given twice");
  }
}

TEST(QueryCheck, ABodyThatSaysSomethingIsRefused) {
  for (const char* nothing : {"", "{}", " { }\r\n", "\n"}) {
    EXPECT_TRUE(check_no_body(nothing).ok()) << nothing;
  }
  for (const std::string& body :
       {std::string(R"({"tenant":"a"})"), std::string("tenant=a"), std::string("null"),
        std::string("[]"), std::string("{}{}"), std::string(70, ' ') + "x"}) {
    const Result<void> refused = check_no_body(body);
    ASSERT_FALSE(refused.ok()) << body;
    EXPECT_EQ(refused.error().field, "body");
  }
}

}  // namespace
}  // namespace pelton::net
