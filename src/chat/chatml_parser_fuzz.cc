// Bytes -> token ids of a tiny vocabulary -> ChatML's parser and a reply. Checks the promises of
// reply.h: total, deltas add up to the reply, valid UTF-8, always something to show; and that a
// reply of marker tokens is the one of all tokens spelled byte by byte.
#include <cstdint>

#include "base/check.h"
#include "base/utf8.h"
#include "chat/chatml_parser.h"
#include "chat/reply.h"
#include "chat/tiny_chatml_tokenizer.h"

namespace pelton::chat {
namespace {

Reply checked_reply(const std::vector<TokenId>& ids, const tokenizer::Tokenizer& tokenizer,
                    const ChatMlTokens& tokens) {
  ReplyBuilder builder(std::make_unique<ChatMlParser>(tokenizer, tokens, Calls::kRead), {});
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
  Reply reply = builder.finish(StopCause::kLength, delta);
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

}  // namespace
}  // namespace pelton::chat

// A byte from 0xF5 on, which no text has, is one of the tokens behind the ordinary ones.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::chat;
  static const pelton::tokenizer::Tokenizer tokenizer = tiny_chatml_tokenizer();
  static const ChatMlTokens tokens = ChatMlTokens::find(tokenizer).value();
  const pelton::TokenId first = tokens.start - 1;
  std::vector<pelton::TokenId> ids;
  std::vector<pelton::TokenId> spelled;
  for (size_t i = 0; i < size; ++i) {
    const pelton::TokenId id = data[i] < 0xF5 ? data[i] : first + (data[i] - 0xF5);
    ids.push_back(id);
    if (tokenizer.is_special(id) || data[i] < 0xF5) {
      spelled.push_back(id);
    } else {
      for (const char c : tokenizer.bytes(id)) spelled.push_back(static_cast<uint8_t>(c));
    }
  }
  const Reply one = checked_reply(ids, tokenizer, tokens);
  const Reply other = checked_reply(spelled, tokenizer, tokens);
  CHECK(one.content == other.content && one.reasoning == other.reasoning);
  CHECK(one.tool_calls.size() == other.tool_calls.size());
  return 0;
}
