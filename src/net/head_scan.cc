#include "net/head_scan.h"

#include <cstring>

namespace pelton::net {
namespace {

bool is_forbidden(char c) {
  return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F;
}

HeadScan bad(int status, std::string_view code, std::string_view message) {
  HeadScan scan;
  scan.kind = HeadScan::Kind::kBad;
  scan.status = status;
  scan.code = code;
  scan.message = message;
  return scan;
}

HeadScan malformed(std::string_view message) {
  return bad(400, "malformed_http", message);
}

// The CR of the line that starts at `start`, npos if it has not come yet. Stops at the first byte
// that no line may hold, which `clean` reports.
struct LineEnd {
  size_t at;
  bool clean;
};
LineEnd find_line_end(std::string_view text, size_t start) {
  for (size_t i = start; i < text.size(); ++i) {
    if (!is_forbidden(text[i])) continue;
    if (text[i] != '\r') return {i, false};
    if (i + 1 == text.size()) return {std::string_view::npos, true};
    return {i, text[i + 1] == '\n'};
  }
  return {std::string_view::npos, true};
}

}  // namespace

HeadScan HeadScanner::scan(std::string_view text, const HttpLimits& limits) {
  while (true) {
    const LineEnd end = find_line_end(text, position_);
    if (!end.clean) return malformed("the header has a control character or a bare CR or LF");
    const bool ended = end.at != std::string_view::npos;
    const size_t known_end = ended ? end.at : text.size() - (text.ends_with('\r') ? 1 : 0);
    if (lines_ == 0 && known_end > limits.start_line_bytes_max) {
      return bad(414, "request_line_too_long", "the request line is too long");
    }
    if (known_end > limits.header_bytes_max) {
      return bad(431, "header_too_large", "the header is larger than the limit");
    }
    const bool starts_blank =
        line_start_ < text.size() && (text[line_start_] == ' ' || text[line_start_] == '\t');
    if (starts_blank) return malformed("a header line starts with white space");
    if (!ended) {
      // A CR at the very end is looked at again, with what follows it.
      position_ = text.empty() ? 0 : text.size() - 1;
      if (position_ < line_start_) position_ = line_start_;
      return {};
    }
    if (end.at == line_start_) {
      HeadScan complete;
      complete.kind = HeadScan::Kind::kComplete;
      complete.head_bytes = end.at + 2;
      return complete;
    }
    if (lines_ > limits.header_count_max) {
      return bad(431, "too_many_headers", "there are more header lines than the limit");
    }
    ++lines_;
    line_start_ = position_ = end.at + 2;
  }
}

}  // namespace pelton::net
