// Sampled tokens -> messages, one token at a time. One owner.
//
// Total: every sequence of token ids parses. What is malformed is repaired, each repair as written
// down in docs/formats/harmony_recovery.md; control tokens out of place resynchronise, and never
// become text. Memory is bounded by the header limits below: text is handed on, not kept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/token_id.h"
#include "chat/harmony_header.h"
#include "chat/harmony_message.h"
#include "chat/harmony_tokens.h"
#include "tokenizer/incremental_decoder.h"
#include "tokenizer/tokenizer.h"

namespace pelton::chat {

struct MessageBegin {
  MessageHeader header;
};

struct TextDelta {
  std::string text;  // valid UTF-8, never empty
};

struct MessageEnd {
  enum class By : uint8_t {
    kEnd,
    kCall,
    kReturn,
    kEndOfText,
    kNextMessage,  // <|start|> or <|channel|> while the text was still open
    kEndOfStream,  // finish()
  };
  By by = By::kEnd;
};

// In this order for each message: one begin, any number of deltas, one end.
using HarmonyEvent = std::variant<MessageBegin, TextDelta, MessageEnd>;

class HarmonyParser {
 public:
  enum class Start {
    kAssistantHeader,  // the prompt ended in "<|start|>assistant"
    kMessage,          // the next token should be <|start|>
  };
  struct Options {
    Start start = Start::kAssistantHeader;
    HeaderDialect dialect = HeaderDialect::kTolerant;
  };

  // A header that grows beyond one of these was none: its words become text.
  static constexpr size_t kHeaderTokensMax = 192;
  static constexpr size_t kHeaderBytesMax = 1024;
  static constexpr int kHeaderWordsMax = 8;

  // Both must outlive this.
  HarmonyParser(const tokenizer::Tokenizer& tokenizer, const HarmonyTokens& tokens,
                const Options& options);

  // Appends to `events` what `token` brought about.
  void push(TokenId token, std::vector<HarmonyEvent>& events);

  // The same for what nearly every token is, text of the open message: what has become certain of
  // it is appended to `text`, and there are no events. False: it is something else, for push().
  bool push_plain(TokenId token, std::string& text);

  // The end of the stream: closes what is open. Nothing may be pushed after it.
  void finish(std::vector<HarmonyEvent>& events);

  // Where the next token would go.
  bool in_text() const { return state_ == State::kText; }
  // The open message's header; meaningful while in_text().
  const MessageHeader& header() const { return header_; }
  // Whether the last pushed token's own bytes became text (control tokens' never do).
  bool token_was_text() const { return token_was_text_; }
  // How often something had to be repaired.
  int repair_count() const { return repair_count_; }

 private:
  enum class State : uint8_t { kBetween, kHeader, kText, kFinished };

  void push_between(TokenId token, std::vector<HarmonyEvent>& events);
  void push_header(TokenId token, std::vector<HarmonyEvent>& events);
  void push_text(TokenId token, std::vector<HarmonyEvent>& events);
  void open_header(std::optional<Role> role);
  void collect_header(TokenId token, std::vector<HarmonyEvent>& events);
  bool header_is_plausible() const;
  // The header turned out to lack its <|message|>: what is no header in it becomes text. False:
  // there was nothing to begin a message with.
  enum class Ending : uint8_t { kByModel, kCutOff };
  bool give_up_header(Ending ending, std::vector<HarmonyEvent>& events);
  void begin_message(MessageHeader header, std::vector<HarmonyEvent>& events);
  void end_message(MessageEnd::By by, std::vector<HarmonyEvent>& events);
  void append_text(std::string_view bytes, std::vector<HarmonyEvent>& events);
  MessageEnd::By ended_by(TokenId token) const;

  const tokenizer::Tokenizer& tokenizer_;
  const HarmonyTokens& tokens_;
  const Options options_;

  State state_ = State::kBetween;
  bool token_was_text_ = false;
  int repair_count_ = 0;
  tokenizer::IncrementalDecoder decoder_;  // of the open message's text

  // The header being collected.
  std::optional<Role> header_role_;  // known before its first word
  std::vector<TokenId> header_tokens_;
  size_t header_bytes_ = 0;
  int header_words_ = 0;
  bool in_word_ = false;
  bool line_ended_ = false;
  bool text_after_line_ = false;

  // The open message.
  MessageHeader header_;
};

}  // namespace pelton::chat
