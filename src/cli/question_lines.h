// The lines of a question at a prompt: one line as a rule; from """ to """ all that stand between;
// with what was attached to it before. A value; one thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace pelton::cli {

inline constexpr std::string_view kQuestionFence = "\"\"\"";

// Without blanks and line ends around it.
std::string_view trimmed(std::string_view text);

class QuestionLines {
 public:
  // A block that is not closed by then ends there.
  explicit QuestionLines(size_t bytes_max) : bytes_max_(bytes_max) {}

  // A text that goes before the next question.
  void attach(std::string_view text);
  void clear();

  // Takes a line; a whole question comes back, or nothing yet.
  std::optional<std::string> add(std::string_view line);

  bool is_fenced() const { return fenced_; }
  bool has_attachment() const { return !attached_.empty(); }

 private:
  const size_t bytes_max_;
  std::string attached_;
  std::string lines_;
  bool fenced_ = false;
};

}  // namespace pelton::cli
