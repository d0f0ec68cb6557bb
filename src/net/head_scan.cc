#include "net/head_scan.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include <fmt/format.h>

namespace pelton::net {
namespace {

bool is_forbidden(char c) {
  return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F;
}

HeadScan bad(int status, std::string_view code, std::string message) {
  HeadScan scan;
  scan.kind = HeadScan::Kind::kBad;
  scan.status = status;
  scan.code = code;
  scan.message = std::move(message);
  return scan;
}

HeadScan malformed(std::string message) {
  return bad(400, "malformed_http", std::move(message));
}

bool is_token_character(char c) {  // of RFC 9110, 5.6.2
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

// What a line of the header is called in a message: "the header 'X-Name'"; never its value, which
// may be a secret.
std::string header_called(std::string_view line, size_t number) {
  constexpr size_t kShownMax = 64;
  const std::string_view name = line.substr(0, line.find(':'));
  const bool has_name = name.size() < line.size() && !name.empty() && name.size() <= kShownMax &&
                        std::ranges::all_of(name, is_token_character);
  if (number == 0) return "the request line";
  return has_name ? fmt::format("the header '{}'", name) : fmt::format("header line {}", number);
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
    if (!end.clean) {
      return malformed(
          fmt::format("{} has a control character or a bare CR or LF",
                      header_called(text.substr(line_start_, end.at - line_start_), lines_)));
    }
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
    if (starts_blank) {
      return malformed(
          fmt::format("header line {} starts with white space: a value stands on one "
                      "line, behind its name",
                      lines_));
    }
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

std::string malformed_line(std::string_view head) {
  size_t number = 0;
  for (size_t start = 0; start < head.size(); ++number) {
    const size_t end = std::min(head.find("\r\n", start), head.size());
    const std::string_view line = head.substr(start, end - start);
    start = end + 2;
    if (number == 0 || line.empty()) continue;  // the request line is the parser's to judge
    const std::string_view name = line.substr(0, line.find(':'));
    if (name.size() == line.size()) {
      return fmt::format("header line {} has no colon behind a name", number);
    }
    if (name.empty() || !std::ranges::all_of(name, is_token_character)) {
      return fmt::format(
          "header line {} has a name that is empty or has a character which no name has, such as "
          "a blank",
          number);
    }
    const auto is_control = [](char c) { return is_forbidden(c); };
    if (std::ranges::any_of(line, is_control)) {
      return header_called(line, number) + " has a control character";
    }
  }
  return "";
}

}  // namespace pelton::net
