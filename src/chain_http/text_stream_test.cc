#include "chain_http/text_stream.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::chain_http {
namespace {

using testing::HasSubstr;
using Fault = chain::CallAnswer::Fault;

std::string chunk(std::string_view text, std::string_view reason = "") {
  Json delta{Json::Object{}};
  delta.set("content", text);
  Json choice{Json::Object{}};
  choice.set("delta", std::move(delta));
  if (!reason.empty()) choice.set("finish_reason", reason);
  Json body{Json::Object{}};
  body.set("choices", Json(Json::Array{std::move(choice)}));
  return "data: " + body.dump() + "\n\n";
}

struct Read {
  std::string text;
  bool wanted = true;
  chain::CallAnswer answer;
};

Read read(const std::string& bytes, size_t step, int64_t most = 1000) {
  TextStream stream(chain::Endpoint::kChat, most);
  Read read;
  for (size_t at = 0; at < bytes.size() && read.wanted; at += step) {
    read.wanted = stream.feed(std::string_view(bytes).substr(at, step),
                              [&](std::string text) { read.text += text; });
  }
  read.answer = stream.answer();
  return read;
}

TEST(TextStream, IsTheAnswerThatItWouldHaveBeenWhole) {
  const std::string bytes = ": wait\n\n" + chunk("Hel") + chunk("lo") + chunk("", "stop") +
                            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5}}\n\n" +
                            "data: [DONE]\n\n";
  for (const size_t step : {1, 7, 1000}) {
    const Read one = read(bytes, step);
    EXPECT_EQ(one.text, "Hello");
    EXPECT_EQ(one.answer.status, 200);
    EXPECT_EQ(one.answer.body, R"({"choices":[{"message":{"role":"assistant","content":"Hello"},)"
                               R"("finish_reason":"stop"}],"usage":{"prompt_tokens":5}})");
  }
}

TEST(TextStream, SaysHowItBroke) {
  EXPECT_EQ(read(chunk("Hel"), 100).answer.fault, Fault::kUnreachable);
  EXPECT_THAT(read("data: <html>\n\n", 100).answer.detail, HasSubstr("no JSON"));
  const Read error =
      read(chunk("a") + "data: {\"error\":{\"message\":\"bad\",\"code\":503}}\n\n", 9);
  EXPECT_FALSE(error.wanted);
  EXPECT_EQ(error.answer.status, 503);
  EXPECT_EQ(chain::error_text(error.answer), "bad");
  const Read long_one = read(chunk("12345") + chunk("67890"), 1000, 8);
  EXPECT_EQ(long_one.text, "12345");
  EXPECT_EQ(long_one.answer.fault, Fault::kTooLarge);
}

TEST(TextStream, AsksForAStream) {
  EXPECT_EQ(with_stream("{}"), R"({"stream":true,"stream_options":{"include_usage":true}})");
  EXPECT_EQ(with_stream(R"({"a":1})"),
            R"({"a":1,"stream":true,"stream_options":{"include_usage":true}})");
}

}  // namespace
}  // namespace pelton::chain_http
