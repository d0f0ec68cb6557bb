#include "chat/dialect_parser.h"

#include <random>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/utf8.h"
#include "chat/chatml_format.h"
#include "chat/chatml_tokens.h"
#include "chat/checked_reply.h"
#include "chat/reply.h"
#include "chat/tiny_chatml_tokenizer.h"

namespace pelton::chat {
namespace {

class ChatMlAnswers : public testing::Test {
 protected:
  std::unique_ptr<TurnParser> parser() const { return format_->parser(calls_); }

  // Streamed, and what the deltas add up to checked against the whole.
  Reply reply_to(const std::vector<TokenId>& ids, StopCause cause) {
    return checked_reply(ReplyBuilder(parser(), {}), ids, cause);
  }

  // The markers as tokens.
  std::vector<TokenId> marked(std::string_view text) const {
    return tokenizer_.encode_with_special(text);
  }
  // The markers spelled byte by byte.
  std::vector<TokenId> spelled(std::string_view text) const {
    std::vector<TokenId> ids;
    for (const char c : text) ids.push_back(static_cast<uint8_t>(c));  // the byte's own token
    return ids;
  }

  const tokenizer::Tokenizer tokenizer_ = tiny_chatml_tokenizer();
  const std::shared_ptr<const ChatFormat> format_ = chatml_format(tokenizer_).value();
  Calls calls_ = Calls::kRead;
  const ChatMlTokens tokens_ = ChatMlTokens::find(tokenizer_).value();
};

std::string shown(const Reply& reply) {
  std::string out = reply.reasoning.value_or("") + " | " + reply.content.value_or("");
  for (const ToolCall& call : reply.tool_calls) out += " | " + call.name + call.arguments;
  return out;
}

std::string expected_of(const Json& row) {
  const Json& wanted = *row.find("expected");
  std::string out =
      wanted.string("reasoning_content").value() + " | " + wanted.string("content").value();
  for (const Json& call : wanted.find("tool_calls")->as_array()) {
    out += " | " + call.string("name").value() + call.string("arguments").value();
  }
  return out;
}

TEST_F(ChatMlAnswers, AreReadAsPublished) {
  const std::string text =
      base::read_file(PELTON_SOURCE_DIR "/src/chat/testdata/qwen3_answers.json").value();
  const Json all = Json::parse(text).value();
  ASSERT_GT(all.as_array().size(), 15u);
  for (const Json& row : all.as_array()) {
    const std::string output = row.string("output").value();
    SCOPED_TRACE(output);
    const bool cut = row.string("finish_reason").value_or("") == "length";
    const StopCause cause = cut ? StopCause::kLength : StopCause::kStopToken;
    const std::vector<TokenId> forms[] = {marked(output), spelled(output)};
    for (std::vector<TokenId> ids : forms) {
      if (!cut) ids.push_back(tokens_.end);
      const Reply reply = reply_to(ids, cause);
      EXPECT_EQ(shown(reply), expected_of(row));
      const bool calls = !reply.tool_calls.empty() && reply.tool_calls[0].complete;
      EXPECT_EQ(reply.finish, cut     ? ReplyFinish::kLength
                              : calls ? ReplyFinish::kToolCalls
                                      : ReplyFinish::kStop);
    }
  }
}

TEST_F(ChatMlAnswers, MarkersAreTokensOrText) {
  EXPECT_TRUE(tokens_.think && tokens_.tool_call_end);
  EXPECT_EQ(marked("<think>").size(), 1u);
  EXPECT_EQ(spelled("<think>").size(), 7u);
}

TEST_F(ChatMlAnswers, ReasoningTokensAreCountedWithoutTheirMarkers) {
  const Reply reply = reply_to(marked("<think>\n1234\n</think>\n\n56"), {});
  EXPECT_EQ(reply.reasoning_tokens, 5);  // with the end of its line
  EXPECT_TRUE(reply.warnings.empty());
}

TEST_F(ChatMlAnswers, ACallThatIsOneGoesWithTheTurnsEnd) {
  std::vector<TokenId> ids = marked("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}");
  ids.push_back(tokens_.end);
  const Reply reply = reply_to(ids, StopCause::kStopToken);
  EXPECT_EQ(shown(reply), " |  | f{}");
  EXPECT_FALSE(reply.warnings.empty());
}

TEST_F(ChatMlAnswers, CallsThatNobodyTakesAreText) {
  calls_ = Calls::kAsText;
  const std::string call = "I call\n<tool_call>\n{\"name\": \"f\"}\n</tool_call>";
  EXPECT_EQ(shown(reply_to(marked(call), {})), " | " + call);
}

TEST_F(ChatMlAnswers, WhatIsWrittenInAnothersNameIsHeldBack) {
  std::vector<TokenId> ids = tokenizer_.encode("yes");
  ids.push_back(tokens_.end);
  ids.push_back(tokens_.start);
  for (const TokenId id : tokenizer_.encode("user\nand?")) ids.push_back(id);
  const Reply reply = reply_to(ids, StopCause::kStopToken);
  EXPECT_EQ(shown(reply), " | yes");
  EXPECT_EQ(reply.warnings.size(), 2u);
}

TEST_F(ChatMlAnswers, LongCallsAndSpacesTakeLinearTime) {
  std::string text = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"";
  text.append(200'000, '<').append("\"}}\n</tool_call>");
  EXPECT_EQ(reply_to(marked(text), {}).tool_calls.at(0).arguments.size(), 200'009u);
  const std::string spaces = "a" + std::string(200'000, '\n') + "b";
  EXPECT_EQ(reply_to(spelled(spaces), {}).content->size(), spaces.size());
}

// Any tokens keep reply.h's promises (those that reply_to checks), and no control token's text.
TEST_F(ChatMlAnswers, AnyTokensGiveAReply) {
  std::mt19937_64 random(std::random_device{}());
  const uint64_t seed = random();
  SCOPED_TRACE("seed " + std::to_string(seed));
  random.seed(seed);
  static constexpr std::string_view kPieces[] = {
      "<think>",      "</think>", "<tool_call>",
      "</tool_call>", "\n",       "<tool_",
      "call>",        "<",        "{\"name\": \"f\", \"arguments\": {",
      "}}",           "\"",       "assistant\n",
      "user\n",       " x",       "\\"};
  for (int round = 0; round < 3000 && !HasFailure(); ++round) {
    std::vector<TokenId> ids;
    for (uint64_t n = random() % 30; n > 0; --n) {
      switch (random() % 4) {
        case 0:
          ids.push_back(static_cast<TokenId>(random() % 310));  // some have no token
          break;
        case 1:
          for (const TokenId id : spelled(kPieces[random() % std::size(kPieces)]))
            ids.push_back(id);
          break;
        default:
          for (const TokenId id : marked(kPieces[random() % std::size(kPieces)])) ids.push_back(id);
      }
    }
    const Reply reply = reply_to(ids, StopCause::kStopToken);
    for (const std::string& text : {reply.content.value_or(""), reply.reasoning.value_or("")}) {
      EXPECT_EQ(text.find("<|im_"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace pelton::chat
