#include "cli/terminal.h"

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

std::string Terminal::wrap(std::string_view begin, std::string_view text) const {
  if (!styled_) return std::string(text);
  return std::string(begin).append(text).append("\x1b[0m");
}

std::string without_controls(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0xC2 && i + 1 < text.size()) {
      const auto next = static_cast<unsigned char>(text[i + 1]);
      if (next >= 0x80 && next < 0xA0) {
        ++i;
        continue;
      }
    }
    if (byte == 0x7F || (byte < 0x20 && byte != '\n' && byte != '\t')) continue;
    out.push_back(text[i]);
  }
  return out;
}

}  // namespace pelton::cli
