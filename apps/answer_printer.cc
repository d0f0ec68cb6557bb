#include "apps/answer_printer.h"

#include <cstdio>

namespace pelton::apps {

void AnswerPrinter::print(const chat::ReplyDelta& delta) {
  if (!delta.reasoning.empty()) {
    enter(Part::kReasoning);
    write(delta.reasoning);
  }
  if (!delta.content.empty()) {
    enter(Part::kContent);
    write(delta.content);
  }
  for (const chat::ToolCallDelta& call : delta.tool_calls) {
    if (call.begins) {
      part_ = Part::kNothing;  // each call on a line of its own
      enter(Part::kToolCall);
      write("call " + call.name + " ");
    }
    write(call.arguments);
  }
  std::fflush(stdout);
}

void AnswerPrinter::finish() {
  enter(Part::kNothing);
  std::fflush(stdout);
}

void AnswerPrinter::enter(Part part) {
  if (part == part_) return;
  if (line_open_) std::fputs("\n", stdout);
  line_open_ = false;
  const std::string_view end = terminal_.style_end();
  std::fwrite(end.data(), 1, end.size(), stdout);
  if (part == Part::kReasoning || part == Part::kToolCall) {
    const std::string_view begin = terminal_.dim_begin();
    std::fwrite(begin.data(), 1, begin.size(), stdout);
  }
  part_ = part;
}

void AnswerPrinter::write(std::string_view text) {
  const std::string safe = cli::without_controls(text);
  if (safe.empty()) return;
  std::fwrite(safe.data(), 1, safe.size(), stdout);
  line_open_ = safe.back() != '\n';
}

}  // namespace pelton::apps
