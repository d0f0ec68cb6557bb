// Sampled tokens -> the parts of a turn in a Dialect: reasoning between its markers, the answer,
// calls. One owner.
//
// Markers are found in the text, so that they may be tokens of their own or be spelled by several;
// nothing that may become one is shown before it is decided. Reasoning opens only where a turn
// begins. Newlines that touch a marker are no text, nor is whitespace before a call. Calls are
// shown as a whole, once they are known to be some: what is none stays text, every character of it
// but for control tokens.
//
// "<think>\nhm\n</think>\n\nI look.\n<tool_call>\n{"name": "f", "arguments": {"a":
// 1}}\n</tool_call>"
//   -> reasoning "hm", answer "I look.", call of f with {"a": 1}
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat/dialect.h"
#include "chat/turn_parser.h"
#include "tokenizer/incremental_decoder.h"

namespace pelton::chat {

class DialectParser final : public TurnParser {
 public:
  // Calls that grow beyond this are none.
  static constexpr size_t kCallBytesMax = 4 << 20;
  // A speaker's name behind a turn's start that grows beyond this is none.
  static constexpr size_t kRoleBytesMax = 64;

  // All outlive this. The prompt has ended where the model's turn begins.
  DialectParser(const tokenizer::Tokenizer& tokenizer, const Dialect& dialect,
                ParserOptions options);

  void push(TokenId token, std::vector<ReplyEvent>& events) override;
  bool push_plain(TokenId token, std::string& text) override;
  void settle(std::vector<ReplyEvent>& events) override;
  void finish(std::vector<ReplyEvent>& events) override;
  int repair_count() const override { return repair_count_; }

 private:
  enum class State : uint8_t {
    kRole,       // behind a turn's start
    kBegin,      // of a turn: reasoning may open, or a call that has no marker
    kReasoning,  //
    kContent,    // text, in which calls may open
    kCalls,      // not known yet to be some
    kOther,      // what the model writes in another's name
  };
  using Events = std::vector<ReplyEvent>;

  void push_control(TokenId token, Events& events);
  void read(std::string_view text, Events& events);
  // What each state makes of a text: how much of it is done with. The rest is held until more
  // comes.
  size_t read_in_state(std::string_view text, Events& events);
  size_t read_role(std::string_view text, Events& events);
  size_t read_begin(std::string_view text, Events& events);
  size_t read_reasoning(std::string_view text, Events& events);
  size_t read_content(std::string_view text, Events& events);
  size_t read_call_text(std::string_view text, Events& events);

  void begin_calls(std::string_view opening);
  void end_calls(SectionEnd end, Events& events);
  void emit_call(WrittenCall call, Events& events);
  void add_text(std::string_view text, Events& events);
  void emit(std::string_view text, Events& events);
  void open(PartKind kind, Events& events);
  void close(PartEnd end, Events& events);
  void end_turn(PartEnd::By by, Events& events);
  void enter(State state);
  std::string without_control_tokens(std::string text) const;

  const tokenizer::Tokenizer& tokenizer_;
  const Dialect& dialect_;
  const ParserOptions options_;
  std::string marker_starts_;  // the first byte of each marker
  tokenizer::IncrementalDecoder decoder_;
  State state_ = State::kBegin;
  bool part_open_ = false;     // a begin was emitted, its end was not
  bool after_marker_ = false;  // newlines are no text yet
  std::string held_;           // what may become a marker
  std::string space_;          // whitespace that is text only if more text follows
  std::string calls_;          // behind their opening
  std::string opening_;        // the marker that they have opened with, if any
  size_t calls_read_ = 0;      // of calls_
  bool in_string_ = false;     // of their JSON
  bool escaped_ = false;
  bool first_turn_ = true;  // no turn has ended yet
  bool marked_ = false;     // the pushed token completed a marker
  bool answered_ = false;   // text of this turn has been read as an answer
  int repair_count_ = 0;
};

}  // namespace pelton::chat
