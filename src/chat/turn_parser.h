// Sampled tokens of one turn -> its parts, as one chat format writes them. Total: every sequence of
// token ids parses; what is malformed is repaired, and control tokens never become text. One owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/token_id.h"
#include "chat/conversation.h"
#include "chat/reply_event.h"

namespace pelton::chat {

// Whether what looks like a call is one, or is shown as text: nobody can take it.
enum class Calls : uint8_t { kRead, kAsText };

struct ParserOptions {
  // For dialects that say nothing of a value's type (ChatFormat::types_by_schema()); may be null.
  using Functions = std::shared_ptr<const std::vector<FunctionTool>>;

  ParserOptions(Calls calls, Functions functions = nullptr)  // NOLINT: implicit
      : calls(calls), functions(std::move(functions)) {}

  Calls calls;
  Functions functions;
};

class TurnParser {
 public:
  virtual ~TurnParser() = default;

  // Appends to `events` what `token` brought about.
  virtual void push(TokenId token, std::vector<ReplyEvent>& events) = 0;

  // The same for what nearly every token is, text of the open part: what has become certain of it
  // is appended to `text`, and there are no events. False: it is something else, for push().
  virtual bool push_plain(TokenId token, std::string& text) = 0;

  // What is held back, as it may become a marker or be space that nothing follows, is text: behind
  // a message that the model goes on with.
  virtual void settle(std::vector<ReplyEvent>& /*events*/) {}

  // The end of the stream: closes what is open. Nothing may be pushed after it.
  virtual void finish(std::vector<ReplyEvent>& events) = 0;

  // How often something had to be repaired.
  virtual int repair_count() const = 0;

  // The part that the next token's text would go to, if one is open.
  std::optional<PartKind> place() const { return place_; }
  // Whether the last pushed token's own bytes became text of a part.
  bool token_was_text() const { return token_was_text_; }

 protected:
  std::optional<PartKind> place_;
  bool token_was_text_ = false;
};

}  // namespace pelton::chat
