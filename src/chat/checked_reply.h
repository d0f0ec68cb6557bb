// For tests and fuzzers: a turn streamed through a ReplyBuilder, every promise of chat/reply.h that
// holds for any tokens CHECKed.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "chat/reply.h"

namespace pelton::chat {

inline Reply checked_reply(ReplyBuilder builder, std::span<const TokenId> ids, StopCause cause) {
  ReplyDelta delta;
  std::string content;
  std::string reasoning;
  std::vector<std::string> arguments;
  const auto add = [&] {
    content += delta.content;
    reasoning += delta.reasoning;
    for (const ToolCallDelta& call : delta.tool_calls) {
      if (call.begins) arguments.emplace_back();
      CHECK(static_cast<size_t>(call.index) + 1 == arguments.size());
      arguments.back() += call.arguments;
    }
  };
  for (const TokenId id : ids) {
    builder.push(id, delta);
    add();
  }
  Reply reply = builder.finish(cause, delta);
  add();
  CHECK(content == reply.content.value_or("") && reasoning == reply.reasoning.value_or(""));
  CHECK(arguments.size() == reply.tool_calls.size());
  CHECK(reply.content || reply.reasoning || !reply.tool_calls.empty());
  CHECK(base::is_valid_utf8(content) && base::is_valid_utf8(reasoning));
  for (size_t i = 0; i < arguments.size(); ++i) {
    const ToolCall& call = reply.tool_calls[i];
    CHECK(arguments[i] == call.arguments && base::is_valid_utf8(call.arguments));
    CHECK(!call.name.empty() && base::is_valid_utf8(call.name));
  }
  return reply;
}

}  // namespace pelton::chat
