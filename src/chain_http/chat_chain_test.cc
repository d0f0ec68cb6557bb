#include "chain_http/chat_chain.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::chain_http {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

chain::Chain chain_of(std::string_view input, std::string_view text) {
  const std::string file = "name = \"c\"\ninput = {" + std::string(input) +
                           "}\noutput = {text = \"" + std::string(text) +
                           "\", stream_from = \"a\"}\n[[step]]\nname = \"a\"\nuse = \"model:m\"\n"
                           "with = {prompt = \"p\"}\n";
  Result<chain::Chain> chain = chain::parse_chain(file, "c.toml");
  EXPECT_TRUE(chain.ok()) << chain.error().message;
  return *std::move(chain);
}

TEST(ChatChain, IsOneWhoseInputAndOutputAreAChats) {
  EXPECT_EQ(chat_input_field(chain_of("q = \"string\", k = \"integer?\"", "${a.text}")), "q");
  EXPECT_EQ(chat_input_field(chain_of("messages = \"[object]\"", "${a.text}")), "messages");
  EXPECT_FALSE(chat_input_field(chain_of("q = \"string\", r = \"string\"", "${a.text}")));
  EXPECT_FALSE(chat_input_field(chain_of("q = \"[string]\"", "${a.text}")));
  EXPECT_FALSE(chat_input_field(chain_of("", "${a.text}")));
  EXPECT_FALSE(chat_input_field(chain_of("q = \"string\"", "${a.usage}")));
}

TEST(ChatChain, TakesTheLastMessageOfTheUserOrAll) {
  const std::string body =
      R"({"model":"chain:c","messages":[{"role":"user","content":"one"},)"
      R"({"role":"assistant","content":"x"},{"role":"user","content":"two"}],"top_p":1,)"
      R"("stream":true,"stream_options":{"include_usage":true}})";
  const auto last = parse_chat_chain_request(body, chain_of("q = \"string\"", "${a.text}"));
  ASSERT_TRUE(last.ok()) << last.error().message;
  EXPECT_EQ(last->input.dump(), R"({"q":"two"})");
  EXPECT_TRUE(last->stream && last->include_usage);
  EXPECT_THAT(last->ignored, ElementsAre("top_p"));
  const auto all = parse_chat_chain_request(body, chain_of("messages = \"[object]\"", "${a.text}"));
  ASSERT_TRUE(all.ok()) << all.error().message;
  EXPECT_EQ(all->input.find("messages")->as_array().size(), 3);
}

TEST(ChatChain, SaysWhyItIsNone) {
  const chain::Chain chain = chain_of("q = \"string\"", "${a.text}");
  const auto said = [&](std::string_view body) {
    const auto request = parse_chat_chain_request(body, chain);
    return request.ok() ? "" : request.error().message;
  };
  EXPECT_THAT(said("<"), HasSubstr("JSON"));
  EXPECT_THAT(said("{}"), HasSubstr("'messages'"));
  EXPECT_THAT(said(R"({"messages":[{"role":"system","content":"x"}]})"),
              HasSubstr("no message of the user"));
  const auto none = parse_chat_chain_request("{}", chain_of("", "${a.text}"));
  EXPECT_THAT(none.error().message, HasSubstr("is no chat"));
}

}  // namespace
}  // namespace pelton::chain_http
