// What a client sees of an answer: reasoning, content and tool calls, made of sampled tokens while
// they arrive. One owner (a net thread, or the terminal chat).
//
// Promises, for every sequence of tokens:
// - What a delta has shown is final: the deltas in a row are the reply, byte for byte.
// - No control token's text in any field, but for arguments; every field is valid UTF-8.
// - A reply without reasoning and without tool calls has content, if only an empty one.
// - Text the model sampled outside of headers and markers is in some field.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "chat/conversation.h"
#include "chat/reply_reader.h"

namespace pelton::chat {

struct ToolCall {
  std::string name;  // of whom: as in CallTarget
  std::string recipient;
  std::string arguments;  // as sampled; not necessarily JSON
  bool is_function = false;
  bool is_builtin = false;
  bool complete = false;  // the model closed it; never run one that is not
};

struct ToolCallDelta {
  int index = 0;
  bool begins = false;  // the first delta of this call; only then name and recipient are set
  std::string name;
  std::string recipient;
  bool is_function = false;
  bool is_builtin = false;
  std::string arguments;
};

struct ReplyDelta {
  // The visible field that the pushed token belongs to, for logprobs; kNone: header or control.
  enum class Kind : uint8_t { kNone, kReasoning, kContent, kToolArguments };
  Kind kind = Kind::kNone;
  std::string reasoning;
  std::string content;
  std::vector<ToolCallDelta> tool_calls;

  bool empty() const { return reasoning.empty() && content.empty() && tool_calls.empty(); }
  void clear();
};

enum class StopCause { kStopToken, kLength };

enum class ReplyFinish { kStop, kToolCalls, kLength };

struct Reply {
  std::optional<std::string> content;
  std::optional<std::string> reasoning;
  std::vector<ToolCall> tool_calls;
  ReplyFinish finish = ReplyFinish::kStop;
  int reasoning_tokens = 0;  // tokens of text in reasoning messages; headers and ends not counted
  std::vector<std::string> warnings;  // what had to be repaired, for the log
};

// The reply as the next prompt's history: reasoning, then what was said, then the calls. Results of
// the calls are the caller's to add.
void append_reply(Conversation& conversation, const Reply& reply);

class ReplyBuilder {
 public:
  struct Options {
    // As content a preamble stands before the answer, a blank line between; where the content must
    // be JSON and nothing else, choose reasoning.
    enum class Preamble : uint8_t { kContent, kReasoning };
    Preamble preamble = Preamble::kContent;
    ReplyReader::Options reader = {};
  };

  ReplyBuilder(std::unique_ptr<TurnParser> parser, const Options& options);

  // `delta` is emptied, then filled with what `token` added.
  void push(TokenId token, ReplyDelta& delta);
  // As TurnParser's.
  void settle(ReplyDelta& delta);

  // The end: `delta` is emptied, then filled with what was still held back (half a code point, an
  // unclosed header). Nothing may be pushed after it.
  Reply finish(StopCause cause, ReplyDelta& delta);

  // The next token's text would be reasoning.
  bool reasons() const { return reader_.reasons(); }
  const ReplyFacts& facts() const { return reader_.facts(); }  // after finish()

 private:
  enum class Field : uint8_t { kReasoning, kContent, kToolArguments };

  Field field_of(PartKind kind) const;
  static ReplyDelta::Kind delta_kind(Field field);
  void apply_events(ReplyDelta& delta);
  void begin(const PartBegin& part, ReplyDelta& delta);
  void add_text(std::string_view text, ReplyDelta& delta);
  void end(const PartEnd& end);
  ToolCallDelta& call_delta(ReplyDelta& delta);

  const Options options_;
  Field field_ = Field::kContent;
  bool separate_ = false;  // the open part's first text needs a separator before it
  Reply reply_;
  ReplyReader reader_;
  std::vector<ReplyEvent> events_;
};

}  // namespace pelton::chat
