// For tests: the real vocabulary, and testdata/harmony_examples.json as conversations.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "chat/harmony_message.h"
#include "chat/harmony_tokens.h"
#include "tokenizer/tokenizer.h"

namespace pelton::chat {

inline const tokenizer::Tokenizer& o200k() {
  static const tokenizer::Tokenizer tokenizer =
      tokenizer::Tokenizer::load(PELTON_SOURCE_DIR "/testdata/tokenizer/o200k_base.tiktoken")
          .value();
  return tokenizer;
}

inline const HarmonyTokens& o200k_tokens() {
  static const HarmonyTokens tokens = HarmonyTokens::find(o200k()).value();
  return tokens;
}

inline std::string chat_testdata(const std::string& file) {
  return base::read_file(PELTON_SOURCE_DIR "/src/chat/testdata/" + file).value();
}

inline const Json::Array& examples(std::string_view kind) {
  static const Json all = Json::parse(chat_testdata("harmony_examples.json")).value();
  return all.find(kind)->as_array();
}

inline std::vector<TokenId> token_ids(const Json& array) {
  std::vector<TokenId> ids;
  for (const Json& id : array.as_array()) ids.push_back(static_cast<TokenId>(id.as_integer()));
  return ids;
}

inline std::optional<std::string> nullable_text(const Json& object, std::string_view key,
                                                std::optional<std::string> absent) {
  return object.find(key) == nullptr ? absent : object.string(key);
}

inline std::vector<FunctionTool> functions_of(const Json& tool_namespace) {
  std::vector<FunctionTool> functions;
  for (const Json& tool : tool_namespace.find("tools")->as_array()) {
    FunctionTool function{.name = tool.string("name").value(),
                          .description = tool.string("description").value_or("")};
    const Json* parameters = tool.find("parameters");
    if (parameters != nullptr && !parameters->is_null()) function.parameters = *parameters;
    functions.push_back(std::move(function));
  }
  return functions;
}

inline SystemContent system_content(const Json& json) {
  SystemContent system;
  system.model_identity = nullable_text(json, "model_identity", system.model_identity);
  system.knowledge_cutoff = nullable_text(json, "knowledge_cutoff", system.knowledge_cutoff);
  system.current_date = json.string("conversation_start_date");
  if (const Json* effort = json.find("reasoning_effort")) {
    system.reasoning_effort.reset();
    if (effort->is_string()) {
      std::string name = effort->as_string();
      name[0] = static_cast<char>(name[0] | 0x20);  // "High"
      system.reasoning_effort = effort_from_name(name).value();
    }
  }
  if (const Json* channels = json.find("channel_config")) {
    system.valid_channels.clear();
    if (channels->is_object()) {
      for (const Json& channel : channels->find("valid_channels")->as_array()) {
        system.valid_channels.push_back(channel.as_string());
      }
    }
  }
  const Json* tools = json.find("tools");
  if (tools == nullptr || !tools->is_object()) return system;
  for (const Json::Member& tool : tools->as_object()) {
    system.tools.push_back({.name = tool.value.string("name").value(),
                            .description = tool.value.string("description").value_or(""),
                            .functions = functions_of(tool.value)});
  }
  return system;
}

inline Content content_part(const Json& json) {
  const std::string type = json.string("type").value();
  if (type == "text") return json.string("text").value();
  if (type == "system_content") return system_content(json);
  DeveloperContent developer;
  developer.instructions = json.string("instructions");
  const Json* tools = json.find("tools");
  if (tools != nullptr && tools->is_object()) {
    developer.functions = functions_of(*tools->find("functions"));
  }
  return developer;
}

inline HarmonyConversation conversation_of(const Json& messages) {
  HarmonyConversation conversation;
  for (const Json& json : messages.as_array()) {
    HarmonyMessage message{.role = role_from_name(json.string("role").value()).value(),
                           .name = json.string("name").value_or(""),
                           .content = {},
                           .channel = json.string("channel"),
                           .recipient = json.string("recipient"),
                           .content_type = json.string("content_type")};
    const Json& content = *json.find("content");
    if (content.is_string()) {
      message.content.emplace_back(content.as_string());
    } else {
      for (const Json& part : content.as_array()) message.content.push_back(content_part(part));
    }
    conversation.messages.push_back(std::move(message));
  }
  return conversation;
}

}  // namespace pelton::chat
