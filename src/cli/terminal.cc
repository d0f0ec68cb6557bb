#include "cli/terminal.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include <sys/ioctl.h>
#include <unistd.h>

namespace pelton::cli {

bool is_terminal(std::FILE* file) {
  return isatty(fileno(file)) == 1;
}

Terminal::Terminal(std::FILE* file) : file_(file), interactive_(is_terminal(file)) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* kind = std::getenv("TERM");
  const bool refused = no_color != nullptr && *no_color != '\0';
  const bool dumb = kind == nullptr || std::string_view(kind) == "dumb";
  styled_ = interactive_ && !refused && !dumb;
}

int Terminal::width() const {
  winsize size{};
  if (!interactive_ || ioctl(fileno(file_), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

int Terminal::text_width(int otherwise) const {
  constexpr int kLeast = 20;  // narrower than a word and its indent nothing is laid out
  constexpr int kMost = 10'000;
  const char* wished = std::getenv("COLUMNS");
  int columns = 0;
  if (wished != nullptr) {
    const std::string_view text = wished;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), columns);
    if (failure != std::errc{} || end != text.data() + text.size()) columns = 0;
  }
  if (columns <= 0) columns = interactive_ ? width() : otherwise;
  return columns <= 0 ? columns : std::clamp(columns, kLeast, kMost);
}

std::string Terminal::wrap(std::string_view begin, std::string_view text) const {
  if (!styled_) return std::string(text);
  return std::string(begin).append(text).append("\x1b[0m");
}

}  // namespace pelton::cli
