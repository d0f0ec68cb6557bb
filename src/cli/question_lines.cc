#include "cli/question_lines.h"

#include <utility>

namespace pelton::cli {

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

void QuestionLines::attach(std::string_view text) {
  attached_ += text;
  attached_ += "\n\n";
}

void QuestionLines::clear() {
  attached_.clear();
  lines_.clear();
  fenced_ = false;
}

std::optional<std::string> QuestionLines::add(std::string_view line) {
  const bool is_fence = trimmed(line) == kQuestionFence;
  if (is_fence && !fenced_) {
    fenced_ = true;
    return std::nullopt;
  }
  if (fenced_ && !is_fence) {
    lines_ += line;
    lines_ += '\n';
    if (lines_.size() <= bytes_max_) return std::nullopt;
  }
  std::string all = attached_ + (fenced_ ? lines_ : std::string(trimmed(line)));
  clear();
  return trimmed(all).empty() ? std::nullopt : std::optional(std::move(all));
}

}  // namespace pelton::cli
