// Sampled tokens -> the parts of a ChatML turn, as Qwen3 writes it: "<think>", reasoning,
// "</think>", the answer, and calls between "<tool_call>" and "</tool_call>". One owner.
//
// Markers are found in the text, so that they may be tokens of their own or be spelled by several;
// nothing that may become one is shown before it is decided. Reasoning opens only where a turn
// begins. Newlines that touch a marker are no text, nor is whitespace before a call. A call is
// shown as a whole, once it is known to be one: what is not JSON stays text, every character of it.
//
// "<think>\nhm\n</think>\n\nI look.\n<tool_call>\n{"name": "f", "arguments": {"a":
// 1}}\n</tool_call>"
//   -> reasoning "hm", answer "I look.", call of f with {"a": 1}
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/chatml_tokens.h"
#include "chat/turn_parser.h"
#include "tokenizer/incremental_decoder.h"

namespace pelton::chat {

class ChatMlParser final : public TurnParser {
 public:
  // A call that grows beyond this is none.
  static constexpr size_t kCallBytesMax = 4 << 20;
  // A speaker's name behind <|im_start|> that grows beyond this is none.
  static constexpr size_t kRoleBytesMax = 64;

  // Both outlive this. The prompt has ended where the model's turn begins.
  ChatMlParser(const tokenizer::Tokenizer& tokenizer, const ChatMlTokens& tokens, Calls calls)
      : tokenizer_(tokenizer), tokens_(tokens), calls_(calls) {}

  void push(TokenId token, std::vector<ReplyEvent>& events) override;
  bool push_plain(TokenId token, std::string& text) override;
  void finish(std::vector<ReplyEvent>& events) override;
  int repair_count() const override { return repair_count_; }

 private:
  enum class State : uint8_t {
    kRole,       // behind <|im_start|>
    kBegin,      // of a turn: reasoning may open
    kReasoning,  //
    kContent,    // text, in which a call may open
    kCall,       // not known yet to be one
    kOther,      // what the model writes in another's name
  };
  using Events = std::vector<ReplyEvent>;

  void push_control(TokenId token, Events& events);
  void read(std::string_view text, Events& events);
  // What each state makes of a text: how much of it is done with. The rest is held until more
  // comes.
  size_t read_role(std::string_view text, Events& events);
  size_t read_begin(std::string_view text, Events& events);
  size_t read_reasoning(std::string_view text, Events& events);
  size_t read_content(std::string_view text, Events& events);
  size_t read_call_text(std::string_view text, Events& events);

  enum class Ended : uint8_t { kClosed, kByModel, kCutOff };
  void end_call(Ended ended, Events& events);
  void tell_call(std::string name, std::string arguments, PartEnd::By by, Events& events);
  void add_text(std::string_view text, Events& events);
  void emit(std::string_view text, Events& events);
  void open(PartKind kind, Events& events);
  void close(PartEnd::By by, Events& events);
  void end_turn(PartEnd::By by, Events& events);
  void enter(State state);

  const tokenizer::Tokenizer& tokenizer_;
  const ChatMlTokens tokens_;
  const Calls calls_;
  tokenizer::IncrementalDecoder decoder_;
  State state_ = State::kBegin;
  bool part_open_ = false;     // a begin was emitted, its end was not
  bool after_marker_ = false;  // newlines are no text yet
  std::string held_;           // what may become a marker
  std::string space_;          // whitespace that is text only if more text follows
  std::string call_;           // behind <tool_call>
  size_t call_read_ = 0;       // of it
  bool in_string_ = false;     // of its JSON
  bool escaped_ = false;
  bool first_turn_ = true;  // no turn has ended yet
  bool marked_ = false;     // the pushed token completed a marker
  int repair_count_ = 0;
};

}  // namespace pelton::chat
