// Finds what a terminal says was pasted (bracketed paste, xterm's mode 2004) among the bytes that
// somebody types. A paste of several lines becomes a placeholder on the line that is edited, and
// its text comes back when the line is done, so that no line of it is taken for a whole question.
// A placeholder is edited as one character, whichever keys do it: the cursor never stands in it,
// and what deletes a part of it deletes all of it. Bytes in, bytes out; no terminal. One thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::cli {

class PasteReader {
 public:
  static constexpr std::string_view kTurnOn = "\x1b[?2004h";
  static constexpr std::string_view kTurnOff = "\x1b[?2004l";
  static constexpr size_t kBytesMax = size_t{1} << 20;  // of one paste

  // The next byte that was read. What is typed by it, if anything, is appended to `typed`.
  void push(char byte, std::string& typed);
  // Nothing follows soon: an escape that began something is a key of its own.
  void flush(std::string& typed);
  // Part of a mark has been read, so that more should come at once.
  bool in_mark() const { return !inside_ && !mark_.empty(); }
  bool inside() const { return inside_; }

  struct Edited {
    std::wstring text;
    size_t cursor = 0;
  };
  // Before each key, with the line as the keys before have left it: the line as it should be, where
  // that is another one.
  std::optional<Edited> mended(const Edited& now);

  // `line` with the pastes in the place of their placeholders. Forgets them.
  std::string restored(std::string line);
  void forget();

 private:
  struct Kept {
    std::string placeholder;
    std::string text;
  };
  void end_paste(std::string& typed);
  size_t count_in(const std::wstring& text) const;
  void remove_remains(Edited& line) const;
  void move_out(Edited& line) const;

  bool inside_ = false;
  bool too_long_ = false;
  std::string mark_;   // as much of the beginning's or the end's mark as has come
  std::string paste_;  // what has come of it
  std::vector<Kept> kept_;
  Edited seen_;  // what mended() has left
};

}  // namespace pelton::cli
