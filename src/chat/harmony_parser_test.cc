#include "chat/harmony_parser.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chat/harmony_examples.h"
#include "chat/harmony_renderer.h"
#include "chat/parsed_messages.h"

namespace pelton::chat {
namespace {

using By = MessageEnd::By;
using Start = HarmonyParser::Start;

Json as_json(const std::vector<ParsedMessage>& messages) {
  Json::Array out;
  for (const ParsedMessage& message : messages) {
    Json json;
    json.set("role", Json(role_name(message.header.role)));
    if (!message.header.name.empty()) json.set("name", Json(message.header.name));
    if (message.header.recipient) json.set("recipient", Json(*message.header.recipient));
    if (message.header.channel) json.set("channel", Json(*message.header.channel));
    if (message.header.content_type) json.set("content_type", Json(*message.header.content_type));
    json.set("content", Json(message.text));
    out.push_back(std::move(json));
  }
  return Json(std::move(out));
}

std::vector<ParsedMessage> parse_text(std::string_view text, Start start) {
  return parse_all(o200k().encode_with_special(text), o200k(), o200k_tokens(), {.start = start});
}

// "channel/recipient/type: text" for each message of the assistant; others begin with "role name".
std::string shown(const std::vector<ParsedMessage>& messages) {
  std::string out;
  for (const ParsedMessage& message : messages) {
    const MessageHeader& header = message.header;
    if (!out.empty()) out += '\n';
    if (header.role != Role::kAssistant) {
      out += std::string(role_name(header.role)) + ' ' + header.name + ' ';
    }
    out += header.channel.value_or("-") + '/' + header.recipient.value_or("-") + '/' +
           header.content_type.value_or("-") + ": " + message.text;
  }
  return out;
}

std::string parsed(std::string_view text) {
  return shown(parse_text(text, Start::kAssistantHeader));
}
std::string parsed_from_start(std::string_view text) {
  return shown(parse_text(text, Start::kMessage));
}

std::vector<ParsedMessage> parse_example(const Json& example, HeaderDialect dialect) {
  const Start start = example.string("role") ? Start::kAssistantHeader : Start::kMessage;
  return parse_all(token_ids(*example.find("tokens")), o200k(), o200k_tokens(),
                   {.start = start, .dialect = dialect});
}

TEST(HarmonyParser, AllExamplesWithMessagesAsTheLibrary) {
  int count = 0;
  for (const Json& example : examples("parse")) {
    if (example.find("messages") == nullptr) continue;
    SCOPED_TRACE(example.string("id").value());
    EXPECT_EQ(as_json(parse_example(example, HeaderDialect::kLibrary)).dump(),
              example.find("messages")->dump());
    ++count;
  }
  EXPECT_EQ(count, 15);
}

// Ours: equal, but where the library lets a control token's text into a name.
TEST(HarmonyParser, AllExamplesInOurDialect) {
  const std::map<std::string, std::string> better = {
      {"P07_final_constrained", "final/-/<|constrain|>json: {\"a\":1}"},
      {"P08_recipient_with_channel_leak", "commentary/functions.bash/-: {}"},
      {"P09_recipient_leak2", "commentary/functions.bash/-: {}"},
      {"P10_stray_channel_prefix", "analysis/-/-: x"},
      // The library's errors; docs/formats/harmony_recovery.md has the reasons.
      {"P11_missing_message_strict", "commentary/-/-: Hello"},
      {"P13_no_start_between", "analysis/-/-: x\nfinal/-/-: y"},
      {"P14_ran_past_call", "commentary/functions.f/-: {}\ncommentary/-/-: z"},
      {"P16_truncated_in_header", "final/-/-: "},
      {"P18_unknown_role", "-/-/-: x"},
      {"P19_extra_header_words", "commentary/functions.f/json: {}"},
  };
  ASSERT_EQ(examples("parse").size(), 21u);
  for (const Json& example : examples("parse")) {
    const std::string id = example.string("id").value();
    SCOPED_TRACE(id);
    const std::vector<ParsedMessage> messages = parse_example(example, HeaderDialect::kTolerant);
    if (const auto found = better.find(id); found != better.end()) {
      EXPECT_EQ(shown(messages), found->second);
    } else {
      ASSERT_NE(example.find("messages"), nullptr);
      EXPECT_EQ(as_json(messages).dump(), example.find("messages")->dump());
    }
  }
}

std::vector<TokenId> fixture_ids(const std::string& file) {
  std::string text = chat_testdata("harmony/" + file);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == ' ' || c == '\n'; }, ',');
  while (text.ends_with(',')) text.pop_back();
  return token_ids(Json::parse("[" + text + "]").value());
}

TEST(HarmonyParser, UpstreamFixtures) {
  const HarmonyParser::Options assistant{.start = Start::kAssistantHeader};
  EXPECT_EQ(shown(parse_all(fixture_ids("test_simple_reasoning_response.txt"), o200k(),
                            o200k_tokens(), assistant)),
            "analysis/-/-: User asks: \"What is 2 + 2?\" Simple arithmetic. Provide answer.\n"
            "final/-/-: 2 + 2 = 4.");
  EXPECT_EQ(shown(parse_all(fixture_ids("test_simple_tool_call.txt"), o200k(), o200k_tokens(),
                            assistant)),
            "analysis/-/-: User asks: \"What is the weather in Tokyo?\" We need to use "
            "lookup_weather tool.\nanalysis/lookup_weather/code: {\"location\": \"Tokyo\"}");
  const std::vector<ParsedMessage> streamed =
      parse_text(chat_testdata("harmony/test_streamable_parser.txt"), Start::kMessage);
  ASSERT_EQ(streamed.size(), 3u);
  EXPECT_EQ(streamed[1].header,
            (MessageHeader{
                .channel = "commentary", .recipient = "browser.search", .content_type = "code"}));
  EXPECT_EQ(streamed[1].ended_by, By::kCall);
  EXPECT_EQ(streamed[2].header, (MessageHeader{.role = Role::kTool,
                                               .name = "browser.search",
                                               .channel = "commentary",
                                               .recipient = "assistant"}));
  std::string tool = chat_testdata("harmony/test_tool_response_parsing.txt");
  while (tool.ends_with('\n') || tool.ends_with(' ')) tool.pop_back();
  EXPECT_EQ(parsed_from_start(tool),
            "tool browser.search commentary/assistant/-: {\"result\": \"https://openai.com/\"}");
}

TEST(HarmonyParser, ReadsWhatTheRendererWrites) {
  for (const Json& example : examples("render")) {
    if (example.string("mode") == "completion") continue;
    SCOPED_TRACE(example.string("id").value());
    const std::vector<ParsedMessage> messages =
        parse_all(token_ids(*example.find("expected_tokens")), o200k(), o200k_tokens(),
                  {.start = Start::kMessage});
    std::string again;
    for (const ParsedMessage& message : messages) {
      HarmonyConversation one;
      one.messages.push_back({.role = message.header.role,
                              .name = message.header.name,
                              .content = {message.text},
                              .channel = message.header.channel,
                              .recipient = message.header.recipient,
                              .content_type = message.header.content_type});
      again += render_text(one, {.mode = message.ended_by == By::kReturn ? RenderMode::kTraining
                                                                         : RenderMode::kPlain});
    }
    EXPECT_EQ(again, example.string("expected_text").value());
  }
}

TEST(HarmonyParser, BothPlacesOfTheRecipient) {
  const std::string call = "commentary/functions.f/<|constrain|>json: {}";
  EXPECT_EQ(parsed("<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"),
            call);
  EXPECT_EQ(parsed(" to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>"),
            call);
  EXPECT_EQ(parsed("<|constrain|>json to=functions.f<|channel|>commentary<|message|>{}<|call|>"),
            call);
  EXPECT_EQ(parsed_from_start(
                "<|start|>assistant<|channel|>commentary to=functions.f<|constrain|>json<|message|>"
                "{}<|call|>"),
            call);
}

TEST(HarmonyParser, NamesWithDotsDashesAndQuotes) {
  for (const std::string name :
       {"functions.web-browsing", "functions.a.b.c", "functions.final_report", "mcp__server--tool",
        "functions.f:1", "functions.analysis"}) {
    EXPECT_EQ(parsed("<|channel|>commentary to=" + name + " json<|message|>{}<|call|>"),
              "commentary/" + name + "/json: {}");
    EXPECT_EQ(parsed(" to=\"" + name + "\"<|channel|>commentary<|message|>{}<|call|>"),
              "commentary/" + name + "/-: {}");
  }
}

// field-lessons 3.1 and harmony.md 9.1, one line each.
TEST(HarmonyParser, RepairsHeaders) {
  const std::string x = "<|message|>x<|end|>";
  EXPECT_EQ(parsed("<|channel|>--commentary" + x), "commentary/-/-: x");
  EXPECT_EQ(parsed("\u2013\u2013commentary" + x), "commentary/-/-: x");
  EXPECT_EQ(parsed_from_start("<|start|>assistantassistant<|channel|>final" + x), "final/-/-: x");
  EXPECT_EQ(parsed_from_start("<|start|>assistantfinal" + x), "final/-/-: x");
  EXPECT_EQ(parsed_from_start("<|start|>assistantto=functions.f<|channel|>analysis" + x),
            "analysis/functions.f/-: x");
  EXPECT_EQ(parsed("<|channel|>commentary to=assistant<|channel|>commentary to=functions.f" + x),
            "commentary/functions.f/-: x");
  EXPECT_EQ(parsed("<|channel|>commentary to=functions.f<|channel|>analysis to=assistant" + x),
            "analysis/functions.f/-: x");
  EXPECT_EQ(parsed("<|channel|>commentaryto=functions.f" + x), "commentary/functions.f/-: x");
  EXPECT_EQ(parsed("<|channel|>commentary to= functions.f" + x), "commentary/functions.f/-: x");
  EXPECT_EQ(parsed("<|channel|>commentary functions.f json" + x), "commentary/functions.f/json: x");
  EXPECT_EQ(parsed("<|start|>assistant<|channel|>final" + x), "final/-/-: x");
  EXPECT_EQ(parsed("<|channel|>final <|constrain|><|message|>x<|end|>"), "final/-/-: x");
  EXPECT_EQ(parsed("<|channel|><|message|>x<|end|>"), "-/-/-: x");
  EXPECT_EQ(parsed("<|channel|>thoughts" + x), "thoughts/-/-: x");
  EXPECT_EQ(parsed_from_start("<|start|>" + x), "-/-/-: x");
  EXPECT_EQ(parsed_from_start(x), "-/-/-: x");
  EXPECT_EQ(parsed_from_start("<|start|>wizard to=assistant" + x), "tool wizard -/assistant/-: x");
  EXPECT_EQ(parsed_from_start("<|start|>user:alice" + x), "user alice -/-/-: x");
}

// A control token's spelling as ordinary text stays out of names too.
TEST(HarmonyParser, CutsSpelledOutMarkersFromNames) {
  std::vector<TokenId> ids = o200k().encode_with_special("<|channel|>commentary to=functions.f");
  o200k().encode("<|channel|>x", ids);
  o200k().encode(" <|constrain|>json", ids);
  ids.push_back(o200k_tokens().message);
  EXPECT_EQ(shown(parse_all(ids, o200k(), o200k_tokens(), {})), "commentary/functions.f/-: ");
}

TEST(HarmonyParser, TextOutOfPlace) {
  // No header at all.
  EXPECT_EQ(parsed("I must refuse<|end|>"), "-/-/-: I must refuse");
  EXPECT_EQ(parsed(" Hello"), "-/-/-:  Hello");
  EXPECT_EQ(parsed("One two three four five six seven eight nine ten.<|return|>"),
            "-/-/-: One two three four five six seven eight nine ten.");
  EXPECT_EQ(parsed("Hi\nthere<|start|>assistant<|channel|>final<|message|>x<|return|>"),
            "-/-/-: Hi\nthere\nfinal/-/-: x");
  // No <|message|>.
  EXPECT_EQ(parsed("<|channel|>analysis We need to look at the question again.<|end|>"
                   "<|start|>assistant<|channel|>final<|message|>x<|return|>"),
            "analysis/-/-: We need to look at the question again.\nfinal/-/-: x");
  EXPECT_EQ(parsed("<|channel|>commentary to=functions.f <|constrain|>json{\"a\": 1}<|call|>"),
            "commentary/functions.f/<|constrain|>json: {\"a\": 1}");
  EXPECT_EQ(parsed("<|channel|>commentary to=functions.f json {\"a\": 1}<|call|>"),
            "commentary/functions.f/json: {\"a\": 1}");
  EXPECT_EQ(parsed("<|channel|>commentary to=functions.f<|call|>"), "commentary/functions.f/-: ");
  // Past the end.
  EXPECT_EQ(parsed("<|channel|>final<|message|>x<|return|> more text<|return|>\n\n<|return|>"),
            "final/-/-: x\n-/-/-:  more text");
}

TEST(HarmonyParser, ControlTokensInsideTextResynchronise) {
  EXPECT_EQ(parsed("<|channel|>analysis<|message|>x<|start|>assistant<|channel|>final<|message|>y"),
            "analysis/-/-: x\nfinal/-/-: y");
  EXPECT_EQ(parsed("<|channel|>analysis<|message|>x<|channel|>final<|message|>y<|return|>"),
            "analysis/-/-: x\nfinal/-/-: y");
  EXPECT_EQ(parsed("<|channel|>final<|message|><|message|>x<|constrain|>y<|reserved_200013|>z"),
            "final/-/-: xyz");
  EXPECT_EQ(parsed("<|end|><|end|><|return|><|channel|>final<|message|>x<|call|><|call|>"),
            "final/-/-: x");
  EXPECT_EQ(parsed("<|channel|>analysis<|message|>x<|end|>assistant<|channel|>final<|message|>y"),
            "analysis/-/-: x\nfinal/-/-: y");
}

TEST(HarmonyParser, CutOffHeaders) {
  EXPECT_EQ(parsed("<|channel|>"), "");
  EXPECT_EQ(parsed("<|channel|>comment"), "commentary/-/-: ");
  EXPECT_EQ(parsed("<|channel|>commentary to=functions.get_we"), "commentary/-/-: ");
  EXPECT_EQ(parsed("<|channel|>analysis<|message|>x<|end|><|start|>assistant"), "analysis/-/-: x");
  EXPECT_EQ(parsed("<|channel|>commentary to=functions.f <|constrain|>js"), "commentary/-/-: ");
}

TEST(HarmonyParser, TellsWhatEndedAMessage) {
  const auto last_end = [](std::string_view text) {
    return parse_text(text, Start::kAssistantHeader).back().ended_by;
  };
  const std::string x = "<|channel|>final<|message|>x";
  EXPECT_EQ(last_end(x), By::kEndOfStream);
  EXPECT_EQ(last_end(x + "<|end|>"), By::kEnd);
  EXPECT_EQ(last_end(x + "<|call|>"), By::kCall);
  EXPECT_EQ(last_end(x + "<|return|>"), By::kReturn);
  EXPECT_EQ(last_end(x + "<|endoftext|>"), By::kEndOfText);
  EXPECT_EQ(last_end(x + "<|start|>"), By::kNextMessage);
}

TEST(HarmonyParser, HeadersAreBounded) {
  HarmonyParser parser(o200k(), o200k_tokens(), {});
  std::vector<HarmonyEvent> events;
  for (int i = 0; i < 100000; ++i) {
    parser.push(o200k_tokens().channel, events);
    if (i % 1000 == 0) events.clear();
  }
  std::vector<HarmonyEvent> wide;
  HarmonyParser one_word(o200k(), o200k_tokens(), {});
  const TokenId a = o200k().encode("a").at(0);
  size_t text_bytes = 0;
  for (int i = 0; i < 5000; ++i) {
    one_word.push(a, wide);
    for (const HarmonyEvent& event : wide) {
      if (const auto* delta = std::get_if<TextDelta>(&event)) text_bytes += delta->text.size();
    }
    wide.clear();
    if (i > static_cast<int>(HarmonyParser::kHeaderTokensMax)) {
      ASSERT_EQ(text_bytes, static_cast<size_t>(i) + 1);
    }
  }
  EXPECT_EQ(text_bytes, 5000u);
}

TEST(HarmonyParser, IdsWithoutATokenAreHarmless) {
  std::vector<TokenId> ids = {-1, 1 << 30, 201088, o200k_tokens().channel, -7};
  o200k().encode("final", ids);
  ids.insert(ids.end(), {999999, o200k_tokens().message, -1, 87, 201088});
  EXPECT_EQ(shown(parse_all(ids, o200k(), o200k_tokens(), {.start = Start::kMessage})),
            "final/-/-: x");
}

}  // namespace
}  // namespace pelton::chat
