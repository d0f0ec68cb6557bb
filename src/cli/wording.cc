#include "cli/wording.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "cli/command_line.h"

namespace pelton::cli {
namespace {

// Levenshtein's distance, where two neighbours that changed places count once.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1);  // two rows back
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last = row;
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row.back();
}

}  // namespace

Error usage_error(std::string message, std::string field) {
  return Error{ErrorCode::kInvalidArgument, std::move(message), std::move(field)};
}

Error with_origin(Error error, const std::string& origin) {
  const bool by_variable = origin.starts_with('$');
  const bool by_file = !by_variable && origin.find(':') != std::string::npos;
  if (!by_variable && !by_file) return error;
  error.message = fmt::format("{}: {}", origin, error.message);
  if (error.code == ErrorCode::kInvalidArgument) error.code = ErrorCode::kBadConfig;
  return error;
}

std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  constexpr size_t kWordMax = 64;  // nobody has mistyped that
  if (word.size() > kWordMax) return best;
  size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::optional<std::string> near = nearest(word, candidates);
  return near ? fmt::format("; did you mean '{}'?", *near) : "";
}

std::string in_words(const Circumstance& circumstance) {
  if (circumstance.values.empty()) return circumstance.flag;
  return fmt::format("{} {}", circumstance.flag, fmt::join(circumstance.values, " or "));
}

std::string in_words(const std::vector<Circumstance>& any_of) {
  std::string words;
  for (size_t i = 0; i < any_of.size(); ++i) {
    if (i > 0) words += i + 1 == any_of.size() ? " or " : ", ";
    words += in_words(any_of[i]);
  }
  return words;
}

std::string whole_help(const Flag& flag) {
  std::string help = flag.help;
  if (!flag.choices.empty()) help += fmt::format(" ({})", fmt::join(flag.choices, "|"));
  if (!flag.aliases.empty()) help += fmt::format("; also {}", fmt::join(flag.aliases, ", "));
  if (!flag.negations.empty()) help += fmt::format("; off: {}", fmt::join(flag.negations, ", "));
  if (!flag.only_with.empty()) help += fmt::format("; with {}", in_words(flag.only_with));
  if (!flag.not_with.empty()) help += fmt::format("; not with {}", in_words(flag.not_with));
  if (!flag.default_text.empty()) help += fmt::format(" [default: {}]", flag.default_text);
  return help;
}

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t space = std::min(text.find(' ', at), text.size());
    words.push_back(text.substr(at, space - at));
    at = space + 1;
  }
  return words;
}

}  // namespace pelton::cli
