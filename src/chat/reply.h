// What a client sees of an answer: reasoning, content and tool calls, made of sampled tokens while
// they arrive. One owner (a net thread, or the terminal chat).
//
// Promises, for every sequence of tokens:
// - What a delta has shown is final: the deltas in a row are the reply, byte for byte.
// - No control token's text in any field; every field is valid UTF-8.
// - A reply without reasoning and without tool calls has content, if only an empty one.
// - Text the model sampled outside of headers is in some field (of the rules in
//   docs/formats/harmony_recovery.md section 3).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/token_id.h"
#include "chat/harmony_parser.h"

namespace pelton::chat {

struct ToolCall {
  std::string name;  // "get_weather"; of a tool that is no developer function the full recipient
  std::string recipient;     // "functions.get_weather", "python"
  std::string arguments;     // as sampled; not necessarily JSON
  bool is_function = false;  // addressed as functions.NAME
  bool is_builtin = false;   // python or browser.*
  bool complete = false;     // the model closed it; never run one that is not
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

// Whether a message goes to a tool: "assistant", "all" and "user" are nobody to be called.
bool goes_to_tool(const MessageHeader& header);
// The call that a message to `recipient` is, with nothing in it yet.
ToolCall begun_call(std::string recipient);

// The reply as the next prompt's history: reasoning, then what was said, then the calls. (Past
// turns' reasoning leaves the prompt by drop_past_analysis.) Results of the calls are the caller's
// to add.
void append_reply(Conversation& conversation, const Reply& reply);

class ReplyBuilder {
 public:
  struct Options {
    HarmonyParser::Start start = HarmonyParser::Start::kAssistantHeader;
    // Commentary to nobody ("I will look that up first"). As content it stands before the answer, a
    // blank line between; where the content must be JSON and nothing else, choose reasoning.
    enum class Preamble : uint8_t { kContent, kReasoning };
    Preamble preamble = Preamble::kContent;
    // False where nobody can be called: what the model addresses to a tool is shown as a preamble.
    bool callable = true;
  };

  // Of what the model writes as somebody else; shown only if there is nothing else to show.
  static constexpr size_t kHeldBackBytesMax = 64 << 10;

  // Both must outlive this.
  ReplyBuilder(const tokenizer::Tokenizer& tokenizer, const HarmonyTokens& tokens,
               const Options& options);

  // `delta` is emptied, then filled with what `token` added.
  void push(TokenId token, ReplyDelta& delta);

  // Push() will be called soon: the memory of what grows is asked for. This object is there, as far
  // as text_end().
  void foresee() const;
  // Where what push() touches for a token of text ends; it begins with this object.
  const void* text_end() const { return parser_.plain_end(); }

  // The end: `delta` is emptied, then filled with what was still held back (half a code point, an
  // unclosed header). Nothing may be pushed after it.
  Reply finish(StopCause cause, ReplyDelta& delta);

  int reasoning_tokens() const { return reply_.reasoning_tokens; }
  // The parser's place: true from <|message|> on, until the message's end.
  bool in_text() const { return parser_.in_text(); }
  const MessageHeader& header() const { return parser_.header(); }

 private:
  enum class Field : uint8_t { kReasoning, kContent, kToolArguments, kHeldBack };

  void apply_events(ReplyDelta& delta);
  void begin(const MessageHeader& header, ReplyDelta& delta);
  void begin_call(const MessageHeader& header, ReplyDelta& delta);
  void add_text(std::string_view text, ReplyDelta& delta);
  void end(MessageEnd::By by);
  ToolCallDelta& call_delta(ReplyDelta& delta);

  const Options options_;
  Field field_ = Field::kContent;
  bool separate_ = false;  // the open message's first text needs a separator before it
  int unclosed_calls_ = 0;
  int calls_as_text_ = 0;
  Reply reply_;
  HarmonyParser parser_;
  std::vector<HarmonyEvent> events_;
  std::string held_back_;  // text of messages the model wrote in another's name
};

}  // namespace pelton::chat
