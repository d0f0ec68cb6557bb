// Prints a streamed reply on a terminal: reasoning dimmed, then the answer, then tool calls as
// lines. What a model writes cannot control the terminal. Main thread.
#pragma once

#include <string>

#include "chat/reply.h"
#include "cli/terminal.h"

namespace pelton::apps {

class AnswerPrinter {
 public:
  explicit AnswerPrinter(const cli::Terminal& terminal) : terminal_(terminal) {}

  void print(const chat::ReplyDelta& delta);
  void finish();  // ends the style and the last line

 private:
  enum class Part { kNothing, kReasoning, kContent, kToolCall };
  void enter(Part part);
  void write(std::string_view text);

  const cli::Terminal& terminal_;
  Part part_ = Part::kNothing;
  bool line_open_ = false;
};

}  // namespace pelton::apps
