// For tests and fuzzers: a parser's events gathered into whole messages, their order checked.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "chat/harmony_parser.h"

namespace pelton::chat {

struct ParsedMessage {
  MessageHeader header;
  std::string text;
  MessageEnd::By ended_by = MessageEnd::By::kEnd;
};

// Begin, deltas, end; begin, deltas, end: anything else is a bug.
inline std::vector<ParsedMessage> gather_messages(const std::vector<HarmonyEvent>& events) {
  std::vector<ParsedMessage> messages;
  bool open = false;
  for (const HarmonyEvent& event : events) {
    if (const auto* begin = std::get_if<MessageBegin>(&event)) {
      CHECK(!open);
      open = true;
      messages.push_back({.header = begin->header, .text = {}});
    } else if (const auto* delta = std::get_if<TextDelta>(&event)) {
      CHECK(open && !delta->text.empty() && base::is_valid_utf8(delta->text));
      messages.back().text += delta->text;
    } else {
      CHECK(open);
      open = false;
      messages.back().ended_by = std::get<MessageEnd>(event).by;
    }
  }
  CHECK(!open);
  return messages;
}

inline std::vector<ParsedMessage> parse_all(const std::vector<TokenId>& ids,
                                            const tokenizer::Tokenizer& tokenizer,
                                            const HarmonyTokens& tokens,
                                            const HarmonyParser::Options& options) {
  HarmonyParser parser(tokenizer, tokens, options);
  std::vector<HarmonyEvent> events;
  for (const TokenId id : ids) parser.push(id, events);
  parser.finish(events);
  return gather_messages(events);
}

}  // namespace pelton::chat
