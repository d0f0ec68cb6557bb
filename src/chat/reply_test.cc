#include "chat/reply.h"

#include <cstdio>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chat/harmony_conversation.h"
#include "chat/harmony_examples.h"
#include "chat/harmony_format.h"
#include "chat/harmony_renderer.h"
#include "chat/parsed_messages.h"
#include "chat/tiny_tokenizer.h"

namespace pelton::chat {
namespace {

using Kind = ReplyDelta::Kind;

// What a client that adds up all deltas holds at the end.
struct Streamed {
  std::string content;
  std::string reasoning;
  std::vector<ToolCall> tool_calls;
  std::vector<Kind> kinds;

  void add(const ReplyDelta& delta) {
    content += delta.content;
    reasoning += delta.reasoning;
    for (const ToolCallDelta& call : delta.tool_calls) {
      if (call.begins) {
        ASSERT_EQ(static_cast<size_t>(call.index), tool_calls.size());
        ASSERT_FALSE(call.name.empty());
        tool_calls.push_back({.name = call.name,
                              .recipient = call.recipient,
                              .arguments = {},
                              .is_function = call.is_function,
                              .is_builtin = call.is_builtin});
      }
      ASSERT_EQ(static_cast<size_t>(call.index) + 1, tool_calls.size());
      tool_calls.back().arguments += call.arguments;
    }
  }
};

struct Outcome {
  Reply reply;
  Streamed streamed;
};

Outcome run(const std::vector<TokenId>& ids, const tokenizer::Tokenizer& tokenizer,
            const HarmonyTokens& tokens, StopCause cause, const ReplyBuilder::Options& options,
            HarmonyParser::Start start = HarmonyParser::Start::kAssistantHeader) {
  ReplyBuilder builder(harmony_turn_parser(tokenizer, tokens, start), options);
  Outcome outcome;
  ReplyDelta delta;
  for (const TokenId id : ids) {
    builder.push(id, delta);
    outcome.streamed.kinds.push_back(delta.kind);
    outcome.streamed.add(delta);
  }
  outcome.reply = builder.finish(cause, delta);
  outcome.streamed.add(delta);
  return outcome;
}

Reply reply_to(std::string_view text, StopCause cause) {
  return run(o200k().encode_with_special(text), o200k(), o200k_tokens(), cause, {}).reply;
}
Reply reply_to(std::string_view text) {
  return reply_to(text, StopCause::kStopToken);
}

TEST(Reply, ReasoningThenAnswer) {
  const Reply reply = reply_to(
      "<|channel|>analysis<|message|>Simple.<|end|><|start|>assistant<|channel|>final<|message|>"
      "4<|return|>");
  EXPECT_EQ(reply.reasoning, "Simple.");
  EXPECT_EQ(reply.content, "4");
  EXPECT_EQ(reply.finish, ReplyFinish::kStop);
  EXPECT_EQ(reply.reasoning_tokens, 2);
  EXPECT_TRUE(reply.tool_calls.empty());
  EXPECT_TRUE(reply.warnings.empty());
}

// vllm#22403: more messages than two are merged in order.
TEST(Reply, ManyMessagesAreJoined) {
  const Reply reply = reply_to(
      "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>"
      "I will look.<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>"
      "<|start|>assistant<|channel|>final<|message|>Done.<|end|><|start|>assistant<|channel|>final"
      "<|message|>Really.<|return|>");
  EXPECT_EQ(reply.reasoning, "a\nb");
  EXPECT_EQ(reply.content, "I will look.\n\nDone.\n\nReally.");
}

TEST(Reply, PreambleMayCountAsReasoning) {
  const std::vector<TokenId> ids = o200k().encode_with_special(
      "<|channel|>commentary<|message|>p<|end|><|start|>assistant<|channel|>final<|message|>{}"
      "<|return|>");
  const Reply reply = run(ids, o200k(), o200k_tokens(), StopCause::kStopToken,
                          {.preamble = ReplyBuilder::Options::Preamble::kReasoning})
                          .reply;
  EXPECT_EQ(reply.reasoning, "p");
  EXPECT_EQ(reply.content, "{}");
}

TEST(Reply, FunctionCallsOnAnyChannel) {
  for (const std::string channel : {"commentary", "analysis", "final"}) {
    const Reply reply = reply_to("<|channel|>" + channel +
                                 " to=functions.web-browsing <|constrain|>json<|message|>{\"a\":\n"
                                 "\"x\"}<|call|>");
    ASSERT_EQ(reply.tool_calls.size(), 1u);
    const ToolCall& call = reply.tool_calls[0];
    EXPECT_EQ(call.name, "web-browsing");
    EXPECT_EQ(call.recipient, "functions.web-browsing");
    EXPECT_EQ(call.arguments, "{\"a\":\n\"x\"}");
    EXPECT_TRUE(call.is_function && call.complete && !call.is_builtin);
    EXPECT_EQ(reply.content, std::nullopt);
    EXPECT_EQ(reply.finish, ReplyFinish::kToolCalls);
  }
}

TEST(Reply, OtherRecipientsAreCalledByTheirFullName) {
  const Reply python = reply_to("<|channel|>analysis to=python code<|message|>print(1)<|call|>");
  EXPECT_EQ(python.tool_calls.at(0).name, "python");
  EXPECT_TRUE(python.tool_calls.at(0).is_builtin);
  const Reply search = reply_to(" to=browser.search<|channel|>commentary<|message|>{}<|call|>");
  EXPECT_EQ(search.tool_calls.at(0).name, "browser.search");
  EXPECT_TRUE(search.tool_calls.at(0).is_builtin);
  const Reply unknown = reply_to("<|channel|>commentary to=lookup<|message|>{}<|call|>");
  EXPECT_EQ(unknown.tool_calls.at(0).name, "lookup");
  EXPECT_FALSE(unknown.tool_calls.at(0).is_builtin || unknown.tool_calls.at(0).is_function);
  EXPECT_EQ(
      reply_to("<|channel|>commentary to=functions.<|message|>{}<|call|>").tool_calls.at(0).name,
      "functions.");
}

// HM-09.
TEST(Reply, TruncatedArgumentsComeAsTheyAre) {
  const Reply reply =
      reply_to("<|channel|>commentary to=functions.f<|message|>{\"a\": [1,", StopCause::kLength);
  EXPECT_EQ(reply.tool_calls.at(0).arguments, "{\"a\": [1,");
  EXPECT_FALSE(reply.tool_calls.at(0).complete);
  EXPECT_EQ(reply.finish, ReplyFinish::kLength);
}

// HM-10: reasoning is never copied into the content.
// Wherever it is cut off, no part of a header is shown as words.
TEST(Reply, CutOffHeadersAreNeverWords) {
  const tokenizer::Tokenizer tiny = tiny_tokenizer();  // a byte is a token
  const HarmonyTokens tokens = HarmonyTokens::find(tiny).value();
  for (const char* header : {"<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
                             "<|channel|>commentary to=functions.f json<|message|>",
                             " to=functions.f<|channel|>commentary code<|message|>"}) {
    const std::vector<TokenId> ids = tiny.encode_with_special(header);
    for (size_t size = 0; size <= ids.size(); ++size) {
      const std::vector<TokenId> begin(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(size));
      const Outcome outcome = run(begin, tiny, tokens, StopCause::kLength, {});
      EXPECT_EQ(outcome.reply.content.value_or(""), "") << tiny.decode(begin);
      EXPECT_EQ(outcome.streamed.content, "");
    }
  }
}

TEST(Reply, EndlessReasoning) {
  const Reply reply = reply_to("<|channel|>analysis<|message|>and on and on", StopCause::kLength);
  EXPECT_EQ(reply.reasoning, "and on and on");
  EXPECT_EQ(reply.content, std::nullopt);
  EXPECT_EQ(reply.finish, ReplyFinish::kLength);
}

TEST(Reply, ThereIsAlwaysSomething) {
  for (const std::string text : {"", "<|channel|>", "<|channel|>final", "<|return|>",
                                 "<|channel|>analysis<|message|><|end|>", "<|start|>assistant"}) {
    EXPECT_EQ(reply_to(text).content, "") << text;
  }
  EXPECT_EQ(reply_to("I must refuse<|end|>").content, "I must refuse");
  EXPECT_EQ(reply_to("<|channel|>thoughts<|message|>x").content, "x");
}

TEST(Reply, AnotherSpeakersTextIsShownOnlyIfAlone) {
  const std::string tool =
      "<|start|>functions.f to=assistant<|channel|>commentary<|message|>42<|end|>";
  EXPECT_EQ(reply_to(tool).content, "42");
  // An empty message beside it shows nothing.
  EXPECT_EQ(reply_to("<|channel|>final<|message|><|end|>" + tool).content, "42");
  const Reply both = reply_to("<|channel|>final<|message|>x<|end|>" + tool);
  EXPECT_EQ(both.content, "x");
  EXPECT_THAT(both.warnings, testing::Contains(testing::HasSubstr("another's name")));
}

// vllm#22515: what comes after <|return|> under ignore_eos is plain text.
TEST(Reply, GenerationPastTheEnd) {
  const Reply reply = reply_to(
      "<|channel|>final<|message|>x<|return|>and more of it, even a lot of "
      "it, one word after the other<|return|>");
  EXPECT_EQ(reply.content, "x\n\nand more of it, even a lot of it, one word after the other");
}

TEST(Reply, EachTokenKnowsItsField) {
  const std::vector<TokenId> ids = o200k().encode_with_special(
      "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.f"
      "<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>\U0001F496<|return|>");
  const Streamed streamed = run(ids, o200k(), o200k_tokens(), StopCause::kStopToken, {}).streamed;
  const auto count = [&](Kind kind) {
    return std::count(streamed.kinds.begin(), streamed.kinds.end(), kind);
  };
  EXPECT_EQ(streamed.kinds[3], Kind::kReasoning);
  EXPECT_EQ(count(Kind::kReasoning), 1);
  EXPECT_EQ(count(Kind::kToolArguments), 1);
  EXPECT_EQ(count(Kind::kContent), 2);  // two halves of one emoji
  EXPECT_EQ(streamed.kinds.back(), Kind::kNone);
}

std::string plain_text(const Conversation& conversation) {
  HarmonyConversation written = harmony_conversation(conversation);
  written.messages.erase(written.messages.begin());  // the system message
  return render_text(written, {.mode = RenderMode::kPlain});
}

TEST(Reply, BecomesHistory) {
  Conversation conversation;
  append_reply(conversation, reply_to("<|channel|>analysis<|message|>t<|end|><|start|>assistant"
                                      "<|channel|>commentary<|message|>p<|end|><|start|>assistant"
                                      "<|channel|>commentary to=functions.f <|constrain|>json"
                                      "<|message|>{}<|call|>"));
  EXPECT_EQ(plain_text(conversation),
            "<|start|>assistant<|channel|>analysis<|message|>t<|end|><|start|>assistant<|channel|>"
            "commentary<|message|>p<|end|><|start|>assistant to=functions.f<|channel|>commentary "
            "<|constrain|>json<|message|>{}<|call|>");
  Conversation answered;
  append_reply(answered, reply_to("<|channel|>final<|message|>x<|return|>"));
  append_reply(answered, reply_to("<|channel|>analysis to=python code<|message|>1<|call|>"));
  EXPECT_EQ(plain_text(answered),
            "<|start|>assistant<|channel|>final<|message|>x<|end|><|start|>assistant to=python"
            "<|channel|>analysis code<|message|>1<|call|>");
}

TEST(Reply, NestedArgumentsTakeLinearTime) {
  std::vector<TokenId> ids =
      o200k().encode_with_special("<|channel|>commentary to=functions.f<|message|>");
  const TokenId bracket = o200k().encode("[").at(0);
  ids.insert(ids.end(), 100000, bracket);
  EXPECT_EQ(run(ids, o200k(), o200k_tokens(), StopCause::kLength, {})
                .reply.tool_calls.at(0)
                .arguments.size(),
            100000u);
}

// ---- Any sequence of tokens ----

class RandomTokens : public testing::Test {
 protected:
  std::vector<TokenId> sequence() {
    std::vector<TokenId> ids(random_() % 60);
    for (TokenId& id : ids) id = token();
    return ids;
  }

  TokenId token() {
    const HarmonyTokens& t = tokens_;
    const TokenId controls[] = {t.start, t.message, t.channel,     t.constrain, t.end,
                                t.call,  t.return_, t.end_of_text, 200013,      200500};
    switch (random_() % 8) {
      case 0:
      case 1:
      case 2:
        return controls[random_() % std::size(controls)];
      case 3:
        return static_cast<TokenId>(random_() % 256);  // a lone byte: broken UTF-8 galore
      case 4:
        return ' ';
      default:
        return 256 + static_cast<TokenId>(random_() % kTinyWords.size());
    }
  }

  const tokenizer::Tokenizer tokenizer_ = tiny_tokenizer();
  const HarmonyTokens tokens_ = HarmonyTokens::find(tokenizer_).value();
  std::mt19937_64 random_;
};

// The visible fields, worked out anew from whole messages: an oracle without streaming in it.
Reply reply_from_messages(const std::vector<ParsedMessage>& messages) {
  Reply reply;
  std::string others;
  const auto join = [](std::optional<std::string>& field, const std::string& text,
                       std::string_view separator) {
    if (!field) field.emplace();
    if (!field->empty() && !text.empty()) *field += separator;
    *field += text;
  };
  for (const ParsedMessage& message : messages) {
    const MessageHeader& header = message.header;
    const std::string recipient = header.recipient.value_or("all");
    if (header.role != Role::kAssistant) {
      others += message.text;
    } else if (recipient != "all" && recipient != "assistant" && recipient != "user") {
      reply.tool_calls.push_back({.name = {}, .recipient = recipient, .arguments = message.text});
    } else if (header.channel == "analysis") {
      if (!message.text.empty()) join(reply.reasoning, message.text, "\n");
    } else {
      join(reply.content, message.text, "\n\n");
    }
  }
  const bool no_content = !reply.content || reply.content->empty();
  if (no_content && !reply.reasoning && reply.tool_calls.empty()) reply.content = others;
  return reply;
}

// 10 000 sequences. PELTON_SEED repeats a run.
TEST_F(RandomTokens, AlwaysGiveAReplyThatStreamsAsItIs) {
  const char* given = std::getenv("PELTON_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("PELTON_SEED=%llu\n", static_cast<unsigned long long>(seed));
  random_.seed(seed);
  int with_calls = 0;
  int with_reasoning = 0;
  for (int i = 0; i < 10000; ++i) {
    const std::vector<TokenId> ids = sequence();
    SCOPED_TRACE(testing::PrintToString(ids));
    const HarmonyParser::Start start =
        i % 4 == 0 ? HarmonyParser::Start::kMessage : HarmonyParser::Start::kAssistantHeader;
    const auto [reply, streamed] = run(ids, tokenizer_, tokens_, StopCause::kStopToken, {}, start);

    ASSERT_EQ(streamed.content, reply.content.value_or(""));
    ASSERT_EQ(streamed.reasoning, reply.reasoning.value_or(""));
    ASSERT_EQ(streamed.tool_calls.size(), reply.tool_calls.size());
    ASSERT_TRUE(reply.content || reply.reasoning || !reply.tool_calls.empty());

    const Reply expected =
        reply_from_messages(parse_all(ids, tokenizer_, tokens_, {.start = start}));
    ASSERT_EQ(reply.content, expected.content);
    ASSERT_EQ(reply.reasoning, expected.reasoning);
    ASSERT_EQ(reply.tool_calls.size(), expected.tool_calls.size());

    std::string visible = streamed.content + streamed.reasoning;
    for (size_t call = 0; call < reply.tool_calls.size(); ++call) {
      ASSERT_EQ(streamed.tool_calls[call].arguments, reply.tool_calls[call].arguments);
      ASSERT_EQ(reply.tool_calls[call].arguments, expected.tool_calls[call].arguments);
      ASSERT_EQ(reply.tool_calls[call].recipient, expected.tool_calls[call].recipient);
      ASSERT_EQ(reply.tool_calls[call].name.find("<|"), std::string::npos);
      visible += reply.tool_calls[call].name + reply.tool_calls[call].arguments;
    }
    ASSERT_TRUE(base::is_valid_utf8(visible));
    // The tiny vocabulary has "<|" as a token but no way to spell a whole name by chance.
    for (const char* control : {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|call|>",
                                "<|return|>", "<|constrain|>", "<|endoftext|>", "<|reserved"}) {
      ASSERT_EQ(visible.find(control), std::string::npos);
    }
    with_calls += reply.tool_calls.empty() ? 0 : 1;
    with_reasoning += reply.reasoning ? 1 : 0;
  }
  // The mix reaches what it is meant to test.
  EXPECT_GT(with_calls, 200);
  EXPECT_GT(with_reasoning, 200);
}

// Well-formed answers whose texts are random: nothing of the text may be lost or moved.
TEST_F(RandomTokens, WellFormedAnswersComeOutWhole) {
  const char* given = std::getenv("PELTON_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("PELTON_SEED=%llu\n", static_cast<unsigned long long>(seed));
  random_.seed(seed);
  for (int i = 0; i < 2000; ++i) {
    std::vector<TokenId> ids;
    const auto encode = [&](std::string_view text) {
      for (const TokenId id : tokenizer_.encode_with_special(text)) ids.push_back(id);
    };
    const auto random_text = [&] {
      std::vector<TokenId> text(random_() % 20);
      for (TokenId& id : text) id = static_cast<TokenId>(random_() % kTinyOrdinaryTokens);
      ids.insert(ids.end(), text.begin(), text.end());
      return tokenizer_.decode(text);
    };
    encode("<|channel|>analysis<|message|>");
    const std::string reasoning = random_text();
    encode("<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>");
    const std::string arguments = random_text();
    encode("<|call|><|start|>assistant<|channel|>final<|message|>");
    const std::string content = random_text();
    encode("<|return|>");
    SCOPED_TRACE(testing::PrintToString(ids));
    const auto [reply, streamed] = run(ids, tokenizer_, tokens_, StopCause::kStopToken, {});
    ASSERT_EQ(streamed.reasoning, reasoning);
    ASSERT_EQ(streamed.content, content);
    ASSERT_EQ(reply.tool_calls.at(0).arguments, arguments);
    ASSERT_TRUE(reply.warnings.empty());
  }
}

}  // namespace
}  // namespace pelton::chat
