#include "api/stream_asked.h"

#include <gtest/gtest.h>

namespace pelton::api {
namespace {

bool streams(std::string_view body) {
  const std::optional<StreamAsked> asked = stream_asked(body);
  return asked && asked->stream.value_or(false);
}

TEST(StreamAsked, IsTheOutermostBoolean) {
  EXPECT_TRUE(streams(R"({"stream":true})"));
  EXPECT_TRUE(streams(R"({"messages":[{"stream":false}],"stream":true,"n":1})"));
  EXPECT_FALSE(streams(R"({"stream":false})"));
  EXPECT_FALSE(streams(R"({"metadata":{"stream":true}})"));
  EXPECT_FALSE(streams(R"({"stream":{"stream":true}})"));
  EXPECT_FALSE(streams(R"({"stream":[true],"a":"stream"})"));
  EXPECT_FALSE(streams(R"({"stream":"true","b":true})"));
  EXPECT_FALSE(streams(R"({"stream":null})"));
  EXPECT_FALSE(streams(R"(["stream",true])"));
  EXPECT_FALSE(streams("true"));
  EXPECT_FALSE(streams(R"({"stream":true)")) << "half a body";
  EXPECT_FALSE(streams(""));
}

TEST(StreamAsked, SaysWhereNothingIsSaid) {
  EXPECT_FALSE(stream_asked("[1]"));
  EXPECT_FALSE(stream_asked(""));
  const std::optional<StreamAsked> asked = stream_asked(R"({"a":{"stream":false},"stream":1})");
  ASSERT_TRUE(asked);
  EXPECT_FALSE(asked->stream);
}

TEST(StreamAsked, SpeechAsEvents) {
  const auto is_sse = [](std::string_view body) { return stream_asked(body).value().is_sse; };
  EXPECT_TRUE(is_sse(R"({"stream_format":"sse","input":"x"})"));
  EXPECT_FALSE(is_sse(R"({"stream_format":"audio","input":"sse"})"));
  EXPECT_FALSE(is_sse(R"({"stream_format":["sse"]})"));
  EXPECT_FALSE(is_sse(R"({"more":{"stream_format":"sse"}})"));
}

}  // namespace
}  // namespace pelton::api
