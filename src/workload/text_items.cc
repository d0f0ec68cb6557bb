#include "workload/text_items.h"

#include <algorithm>

namespace pelton::workload {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

// Where the element at the beginning of `text` ends: at its comma or the array's bracket.
size_t element_end(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '[' || c == '{') ++depth;
    if (depth == 0 && (c == ',' || c == ']')) return i;
    if (c == ']' || c == '}') --depth;
  }
  return text.size();
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

ArrayItems::ArrayItems(std::string_view text) : rest_(trimmed(text)) {
  is_array_ = rest_.starts_with('[');
  if (is_array_) rest_.remove_prefix(1);
}

std::optional<std::string_view> ArrayItems::next() {
  if (!is_array_ || closed_ || rest_.empty()) return std::nullopt;
  const size_t end = element_end(rest_);
  const std::string_view item = trimmed(rest_.substr(0, end));
  closed_ = end < rest_.size() && rest_[end] == ']';
  rest_.remove_prefix(std::min(end + 1, rest_.size()));
  if (item.empty() && closed_) return std::nullopt;  // "[]"
  return item;
}

std::optional<std::string_view> Lines::next() {
  while (!rest_.empty()) {
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    const std::string_view line = trimmed(rest_.substr(0, end));
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++number_;
    if (!line.empty()) return line;
  }
  return std::nullopt;
}

}  // namespace pelton::workload
