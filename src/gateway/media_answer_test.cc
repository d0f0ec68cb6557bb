#include "gateway/media_answer.h"

#include <string>

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

net::HttpHeaders head(const std::string& type, const std::string& length = "") {
  net::HttpHeaders headers;
  headers.add("Content-Type", type);
  if (!length.empty()) headers.add("Content-Length", length);
  return headers;
}

// Whether all of it is one, however it is cut.
bool is_whole(const net::HttpHeaders& headers, const std::string& body, size_t step) {
  MediaAnswer answer(1000);
  if (!answer.begin(headers).ok()) return false;
  for (size_t at = 0; at < body.size(); at += step) {
    if (!answer.push(std::string_view(body).substr(at, step)).ok()) return false;
  }
  return answer.finish().ok();
}

TEST(MediaAnswer, SaysWhatIsNoPicture) {
  const auto check = [](const net::HttpHeaders& headers, const std::string& body) {
    const bool whole = is_whole(headers, body, body.size() + 1);
    for (size_t step = 1; step <= body.size(); ++step) {
      EXPECT_EQ(is_whole(headers, body, step), whole) << step;
    }
    return whole;
  };
  const std::string json = "application/json; charset=utf-8";
  EXPECT_TRUE(check(head(json), " {\"data\":[]}\r\n"));
  EXPECT_FALSE(check(head(json), "{\"data\":["));
  EXPECT_FALSE(check(head(json), "<html></html>"));
  EXPECT_FALSE(check(head(json), "  "));
  EXPECT_FALSE(check(head(json), ""));
  EXPECT_FALSE(check(head("text/html"), "<html></html>"));
  EXPECT_FALSE(check(head(""), "abc"));
  EXPECT_TRUE(check(head("video/mp4"), "abc"));
  EXPECT_TRUE(check(head("IMAGE/PNG", "3"), "abc"));
  EXPECT_FALSE(check(head("image/png", "4"), "abc")) << "it broke off";
  EXPECT_FALSE(check(head("image/png"), ""));
}

TEST(MediaAnswer, HasABound) {
  MediaAnswer answer(4);
  ASSERT_TRUE(answer.begin(head("video/mp4")).ok());
  EXPECT_TRUE(answer.push("abcd").ok());
  const auto beyond = answer.push("e");
  ASSERT_FALSE(beyond.ok());
  EXPECT_NE(beyond.error().message.find("result_bytes_max"), std::string::npos);
  EXPECT_FALSE(MediaAnswer(4).begin(head("video/mp4", "5")).ok()) << "its head says so";
  EXPECT_TRUE(MediaAnswer(4).begin(head("video/mp4", "many")).ok()) << "that is no length";
}

TEST(MediaAnswer, StreamsOfEventsAndErrorsAreReadOtherwise) {
  EXPECT_TRUE(MediaAnswer::is_one(200, head("video/mp4")));
  EXPECT_TRUE(MediaAnswer::is_one(206, head("video/mp4")));
  EXPECT_FALSE(MediaAnswer::is_one(404, head("application/json")));
  EXPECT_FALSE(MediaAnswer::is_one(200, head("Text/Event-Stream; charset=utf-8")));
}

}  // namespace
}  // namespace pelton::gateway
