// For tests: a chat stream put together again, as a client's library does.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/server_fixture.h"

namespace pelton::server {

struct ChatText {
  std::string content;
  std::string reasoning;
  std::vector<std::pair<std::string, std::string>> calls;  // name, arguments
  std::string finish_reason;
  std::string logprobs;  // the tokens' entries, as JSON, commas between
  int64_t completion_tokens = -1;
  int64_t reasoning_tokens = -1;

  friend bool operator==(const ChatText&, const ChatText&) = default;
};

inline void read_usage(const Json& json, ChatText& text) {
  const Json* usage = json.find("usage");
  if (usage == nullptr || usage->is_null()) return;
  text.completion_tokens = usage->integer("completion_tokens").value_or(-1);
  text.reasoning_tokens =
      usage->find("completion_tokens_details")->integer("reasoning_tokens").value_or(-1);
}

inline void read_logprobs(const Json& choice, ChatText& text) {
  const Json* logprobs = choice.find("logprobs");
  if (logprobs == nullptr || logprobs->is_null()) return;
  for (const Json& entry : logprobs->find("content")->as_array()) {
    if (!text.logprobs.empty()) text.logprobs += ',';
    text.logprobs += entry.dump();
  }
}

inline ChatText whole_text(const std::string& body, size_t index = 0) {
  const Json json = parsed(body);
  const Json& choice = json.find("choices")->as_array().at(index);
  EXPECT_EQ(choice.integer("index"), static_cast<int64_t>(index));
  const Json& message = *choice.find("message");
  ChatText text;
  text.content = message.string("content").value_or("");
  text.reasoning = message.string("reasoning_content").value_or("");
  if (const Json* calls = message.find("tool_calls")) {
    for (const Json& call : calls->as_array()) {
      EXPECT_TRUE(call.string("id").value_or("").starts_with("call_"));
      EXPECT_EQ(call.string("type"), "function");
      const Json& function = *call.find("function");
      text.calls.emplace_back(*function.string("name"), *function.string("arguments"));
    }
  }
  text.finish_reason = choice.string("finish_reason").value_or("");
  read_logprobs(choice, text);
  read_usage(json, text);
  return text;
}

inline void add_calls(const Json& calls, ChatText& text) {
  for (const Json& call : calls.as_array()) {
    const auto index = static_cast<size_t>(call.integer("index").value_or(-1));
    const Json& function = *call.find("function");
    if (index == text.calls.size()) {
      EXPECT_TRUE(call.string("id").value_or("").starts_with("call_"));
      EXPECT_EQ(call.string("type"), "function");
      text.calls.emplace_back(function.string("name").value_or("no name"), "");
    } else {
      EXPECT_EQ(call.find("id"), nullptr) << "only the first delta of a call has an id";
    }
    text.calls.at(index).second += function.string("arguments").value_or("");
  }
}

inline ChatText streamed_text(const std::string& body, size_t index = 0) {
  ChatText text;
  bool begun = false;
  const std::vector<std::string> events = events_of(body);
  EXPECT_FALSE(events.empty());
  if (events.empty()) return text;
  EXPECT_EQ(events.back(), "[DONE]");
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json json = parsed(events[i]);
    EXPECT_EQ(json.string("object"), "chat.completion.chunk");
    read_usage(json, text);
    const Json::Array& choices = json.find("choices")->as_array();
    if (choices.empty()) continue;
    EXPECT_EQ(choices.size(), 1u);
    if (choices[0].integer("index") != static_cast<int64_t>(index)) continue;
    EXPECT_EQ(text.finish_reason, "") << "a delta after the end";
    const Json& delta = *choices[0].find("delta");
    EXPECT_EQ(delta.find("role") != nullptr, !begun);
    begun = true;
    text.content += delta.string("content").value_or("");
    text.reasoning += delta.string("reasoning_content").value_or("");
    if (const Json* calls = delta.find("tool_calls")) add_calls(*calls, text);
    read_logprobs(choices[0], text);
    text.finish_reason = choices[0].string("finish_reason").value_or("");
  }
  return text;
}

}  // namespace pelton::server
