// The one interpreter of a turn: tokens -> what is shown of it, as events that every API makes its
// own of. What the model writes in another's name is held back, reasoning without text is no part,
// a call that nobody can take is text, a call too many is left out; and there is always something
// to see. One owner.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chat/turn_parser.h"

namespace pelton::chat {

// What of a turn is not as the model should have written it, or not as it was shown.
struct ReplyFacts {
  int repairs = 0;
  int calls_as_text = 0;
  int calls_left_out = 0;
  int unclosed_calls = 0;
  bool text_left_out = false;  // what the model wrote in another's name

  // What was shown stands for all that was sampled, each part closed as it should be.
  bool well_formed() const {
    return repairs == 0 && calls_as_text == 0 && calls_left_out == 0 && unclosed_calls == 0 &&
           !text_left_out;
  }
};

class ReplyReader {
 public:
  struct Options {
    // False where nobody can be called: what the model addresses to a tool is text.
    bool callable = true;
    bool builtins_alone = false;  // only tools of the model's own can be
    bool one_call = false;        // of several calls only the first is shown
  };

  // Of what the model writes as somebody else; shown only if there is nothing else to show.
  static constexpr size_t kHeldBackBytesMax = 64 << 10;

  ReplyReader(std::unique_ptr<TurnParser> parser, const Options& options);

  // As TurnParser's. The text that push_plain() gives, into an empty string, is the last begun
  // part's.
  void push(TokenId token, std::vector<ReplyEvent>& events);
  bool push_plain(TokenId token, std::string& text) {
    if (takes_events_) return false;
    if (!parser_->push_plain(token, text)) return false;
    if (place_ == PartKind::kReasoning) ++reasoning_tokens_;
    seen_ = seen_ || !text.empty();
    return true;
  }
  void settle(std::vector<ReplyEvent>& events);
  // The end: closes what is open, and sees to it that there is something to see.
  void finish(std::vector<ReplyEvent>& events);
  // The same of a turn that failed: nothing is made up.
  void cut_off(std::vector<ReplyEvent>& events);

  // The part that the last pushed token's text belongs to, if it has one and that is shown.
  std::optional<PartKind> token_part() const {
    return parser_->token_was_text() ? place_ : std::nullopt;
  }
  // The next token's text would be reasoning.
  bool reasons() const { return parser_->place() == PartKind::kReasoning; }
  int reasoning_tokens() const { return reasoning_tokens_; }  // of text; markers not counted
  const ReplyFacts& facts() const { return facts_; }          // after finish()

 private:
  void interpret(std::vector<ReplyEvent>& events);
  void begin(PartBegin&& part, std::vector<ReplyEvent>& events);
  void add_text(PartText&& text, std::vector<ReplyEvent>& events);
  void end(const PartEnd& end, std::vector<ReplyEvent>& events);

  const Options options_;
  const std::unique_ptr<TurnParser> parser_;
  std::optional<PartKind> place_;  // of the open part, if it is shown
  bool takes_events_ = true;       // text is not simply the open part's
  bool seen_ = false;              // any text, or a call
  bool reasoning_due_ = false;     // reasoning is open, no text in it yet
  int reasoning_tokens_ = 0;

  bool is_call_ = false;  // the open part, shown or left out
  int calls_ = 0;
  bool begun_ = false;  // any part
  std::string held_back_;
  ReplyFacts facts_;
  std::vector<ReplyEvent> raw_;  // reused
};

}  // namespace pelton::chat
