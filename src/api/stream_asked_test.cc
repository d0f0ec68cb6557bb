#include "api/stream_asked.h"

#include <gtest/gtest.h>

namespace pelton::api {
namespace {

TEST(StreamAsked, IsTheOutermostBoolean) {
  EXPECT_TRUE(stream_asked(R"({"stream":true})"));
  EXPECT_TRUE(stream_asked(R"({"messages":[{"stream":false}],"stream":true,"n":1})"));
  EXPECT_FALSE(stream_asked(R"({"stream":false})"));
  EXPECT_FALSE(stream_asked(R"({"metadata":{"stream":true}})"));
  EXPECT_FALSE(stream_asked(R"({"stream":{"stream":true}})"));
  EXPECT_FALSE(stream_asked(R"({"stream":[true],"a":"stream"})"));
  EXPECT_FALSE(stream_asked(R"({"stream":"true","b":true})"));
  EXPECT_FALSE(stream_asked(R"({"stream":null})"));
  EXPECT_FALSE(stream_asked(R"(["stream",true])"));
  EXPECT_FALSE(stream_asked("true"));
  EXPECT_FALSE(stream_asked(R"({"stream":true)")) << "half a body";
  EXPECT_FALSE(stream_asked(""));
}

}  // namespace
}  // namespace pelton::api
