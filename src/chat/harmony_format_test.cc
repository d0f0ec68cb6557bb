#include "chat/harmony_format.h"

#include <gtest/gtest.h>

#include "chat/harmony_renderer.h"
#include "chat/reply.h"

namespace pelton::chat {
namespace {

class CallOpening : public ::testing::Test {
 protected:
  // A reply opened so, of which the model then samples `sampled`.
  Reply reply_to(std::string_view name, std::string_view sampled) {
    ReplyBuilder builder(format_->parser(Calls::kRead), {});
    ReplyDelta delta;
    for (const TokenId token : format_->call_opening(name)) builder.push(token, delta);
    for (const TokenId token : tokenizer_.encode_with_special(sampled)) builder.push(token, delta);
    return builder.finish(StopCause::kStopToken, delta);
  }

  const tokenizer::Tokenizer tokenizer_ =
      std::move(tokenizer::Tokenizer::load(std::string(PELTON_SOURCE_DIR) +
                                           "/testdata/tokenizer/o200k_base.tiktoken")
                    .value());
  const HarmonyTokens tokens_ = HarmonyTokens::find(tokenizer_).value();
  const std::shared_ptr<const ChatFormat> format_ = harmony_format(tokenizer_).value();
};

TEST_F(CallOpening, ANamedFunctionIsCalledWhateverIsSampled) {
  for (const char* sampled : {R"({"city":"Oslo"}<|call|>)", R"({"city":"Oslo"})"}) {
    const Reply reply = reply_to("get_weather", sampled);
    ASSERT_EQ(reply.tool_calls.size(), 1u);
    EXPECT_EQ(reply.tool_calls[0].name, "get_weather");
    EXPECT_EQ(reply.tool_calls[0].arguments, R"({"city":"Oslo"})");
    EXPECT_TRUE(reply.tool_calls[0].is_function);
  }
}

TEST_F(CallOpening, WithoutANameTheModelChoosesOne) {
  const Reply reply =
      reply_to("", ".get_weather<|channel|>commentary <|constrain|>json<|message|>{}<|call|>");
  ASSERT_EQ(reply.tool_calls.size(), 1u);
  EXPECT_EQ(reply.tool_calls[0].name, "get_weather");
  EXPECT_EQ(reply.finish, ReplyFinish::kToolCalls);
}

// What history renders for such a call later is what was opened and sampled: an exact prefix.
TEST_F(CallOpening, EqualsTheRenderedCall) {
  HarmonyConversation conversation;
  conversation.messages.push_back(function_call("get_weather", "{}"));
  std::vector<TokenId> opened = {tokens_.start};
  tokenizer_.encode("assistant", opened);
  for (const TokenId token : format_->call_opening("get_weather")) {
    opened.push_back(token);
  }
  tokenizer_.encode("{}", opened);
  opened.push_back(tokens_.call);
  EXPECT_EQ(HarmonyRenderer(tokenizer_, tokens_).render(conversation, {.mode = RenderMode::kPlain}),
            opened);
}

}  // namespace
}  // namespace pelton::chat
