// Bytes -> token ids of a tiny vocabulary -> ChatML's parser and a reply. Checks the promises of
// reply.h: total, deltas add up to the reply, valid UTF-8, always something to show; and that a
// reply of marker tokens is the one of all tokens spelled byte by byte.
#include <cstdint>

#include "base/check.h"
#include "base/utf8.h"
#include "chat/chatml_parser.h"
#include "chat/checked_reply.h"
#include "chat/reply.h"
#include "chat/tiny_chatml_tokenizer.h"

namespace pelton::chat {
namespace {

Reply chatml_reply(const std::vector<TokenId>& ids, const tokenizer::Tokenizer& tokenizer,
                   const ChatMlTokens& tokens) {
  return checked_reply(
      ReplyBuilder(std::make_unique<ChatMlParser>(tokenizer, tokens, Calls::kRead), {}), ids,
      StopCause::kLength);
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
  const Reply one = chatml_reply(ids, tokenizer, tokens);
  const Reply other = chatml_reply(spelled, tokenizer, tokens);
  CHECK(one.content == other.content && one.reasoning == other.reasoning);
  CHECK(one.tool_calls.size() == other.tool_calls.size());
  return 0;
}
