// Reads lines from the user. On a terminal with editing and history (libedit); from a pipe,
// plainly. One thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cli/interrupt.h"

namespace pelton::cli {

class LineEditor {
 public:
  enum class Outcome {
    kLine,         // see line()
    kInterrupted,  // Ctrl-C: the line was given up
    kEnd,          // Ctrl-D, or the input ended
  };

  // `interrupt` outlives it: a signal gives the line up.
  LineEditor(std::string program, std::string prompt, const Interrupt& interrupt);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Waits for a line. A line that ends in a backslash goes on in the next one.
  Outcome read();
  const std::string& line() const { return line_; }  // without its newline

 private:
  struct Session;
  Outcome read_once(std::string& line);

  std::unique_ptr<Session> session_;  // null: input is no terminal
  std::string line_;
};

}  // namespace pelton::cli
