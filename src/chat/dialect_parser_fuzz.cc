// Bytes -> a dialect (the first byte) and token ids of a tiny vocabulary -> its parser and a reply.
// Checks the promises of reply.h: total, deltas add up to the reply, valid UTF-8, always something
// to show; and that a reply of marker tokens is the one of all tokens spelled byte by byte.
#include <cstdint>

#include "base/check.h"
#include "chat/checked_reply.h"
#include "chat/dialect_parser.h"
#include "chat/tiny_chatml_tokenizer.h"

namespace pelton::chat {
namespace {

constexpr std::string_view kNames[] = {"hermes",  "deepseek_r1",  "deepseek_v31", "llama3_json",
                                       "mistral", "mistral_args", "qwen3_coder",  "phi4_mini",
                                       "plain",   "pythonic"};

Reply reply_of(const std::vector<TokenId>& ids, const tokenizer::Tokenizer& tokenizer,
               const Dialect& dialect) {
  return checked_reply(
      ReplyBuilder(std::make_unique<DialectParser>(tokenizer, dialect, Calls::kRead), {}), ids,
      StopCause::kLength);
}

}  // namespace
}  // namespace pelton::chat

// A byte from 0xF5 on, which no text has, is one of the tokens behind the ordinary ones.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::chat;
  static const pelton::tokenizer::Tokenizer tokenizer = tiny_chatml_tokenizer();
  static const pelton::TokenId start = tokenizer.special_id("<|im_start|>").value();
  static const pelton::TokenId end = tokenizer.special_id("<|im_end|>").value();
  if (size == 0) return 0;
  Dialect dialect = make_dialect(*find_reasoning_syntax("think"),
                                 *find_call_syntax(kNames[data[0] % std::size(kNames)]), tokenizer);
  dialect.turn_start = start;
  dialect.stops = {end};
  std::vector<pelton::TokenId> ids;
  std::vector<pelton::TokenId> spelled;
  for (size_t i = 1; i < size; ++i) {
    const pelton::TokenId id = data[i] < 0xF5 ? data[i] : start - 1 + (data[i] - 0xF5);
    ids.push_back(id);
    if (tokenizer.is_special(id) || data[i] < 0xF5) {
      spelled.push_back(id);
    } else {
      for (const char c : tokenizer.bytes(id)) spelled.push_back(static_cast<uint8_t>(c));
    }
  }
  const Reply one = reply_of(ids, tokenizer, dialect);
  const Reply other = reply_of(spelled, tokenizer, dialect);
  CHECK(one.content == other.content && one.reasoning == other.reasoning);
  CHECK(one.tool_calls.size() == other.tool_calls.size());
  return 0;
}
