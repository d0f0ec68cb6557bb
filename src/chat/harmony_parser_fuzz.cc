// Bytes -> token ids of a tiny vocabulary -> parser and reply. Checks the promises of reply.h:
// total, deltas add up to the reply, valid UTF-8, no control token's text, always something to
// show.
#include <cstdint>
#include <span>

#include "chat/checked_reply.h"
#include "chat/harmony_format.h"
#include "chat/parsed_messages.h"
#include "chat/reply.h"
#include "chat/tiny_tokenizer.h"

namespace pelton::chat {
namespace {

// High bytes choose control tokens and words, so that a few mutations reach every state.
TokenId token_of(uint8_t byte, const HarmonyTokens& tokens) {
  const TokenId controls[] = {
      tokens.start, tokens.message, tokens.channel,     tokens.constrain, tokens.end,
      tokens.call,  tokens.return_, tokens.end_of_text, 200500,           -1};
  if (byte < 0x80 || byte >= 0xC0) return byte;
  const size_t choice = byte - 0x80;
  if (choice < std::size(controls)) return controls[choice];
  return 256 + static_cast<TokenId>((choice - std::size(controls)) % kTinyWords.size());
}

void check_reply(std::span<const TokenId> ids, const tokenizer::Tokenizer& tokenizer,
                 const HarmonyTokens& tokens, HarmonyParser::Start start,
                 const ReplyBuilder::Options& options) {
  const Reply reply =
      checked_reply(ReplyBuilder(harmony_turn_parser(tokenizer, tokens, start), options), ids,
                    StopCause::kStopToken);
  for (const ToolCall& call : reply.tool_calls) CHECK(call.name.find("<|") == std::string::npos);
}

}  // namespace
}  // namespace pelton::chat

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::chat;
  static const pelton::tokenizer::Tokenizer tokenizer = tiny_tokenizer();
  static const HarmonyTokens tokens = HarmonyTokens::find(tokenizer).value();
  if (size == 0) return 0;
  std::vector<pelton::TokenId> ids;
  for (size_t i = 1; i < size; ++i) ids.push_back(token_of(data[i], tokens));
  const auto start =
      (data[0] & 1) != 0 ? HarmonyParser::Start::kMessage : HarmonyParser::Start::kAssistantHeader;
  const auto dialect = (data[0] & 2) != 0 ? HeaderDialect::kLibrary : HeaderDialect::kTolerant;
  parse_all(ids, tokenizer, tokens, {.start = start, .dialect = dialect});
  const auto preamble = (data[0] & 4) != 0 ? ReplyBuilder::Options::Preamble::kReasoning
                                           : ReplyBuilder::Options::Preamble::kContent;
  check_reply(ids, tokenizer, tokens, start, {.preamble = preamble});
  return 0;
}
