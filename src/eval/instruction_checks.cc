#include "eval/instruction_checks.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "eval/judge.h"
#include "eval/language.h"

namespace pelton::eval {
namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::string lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// Parts between separators; those of white space only do not count.
std::vector<std::string_view> parts(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> found;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    const std::string_view part = trimmed(text.substr(begin, end - begin));
    if (!part.empty()) found.push_back(part);
    begin = end + separator.size();
  }
  return found;
}

int64_t count_words(std::string_view text) {
  int64_t count = 0;
  bool within = false;
  for (const char c : text) {
    const bool blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (!blank && !within) ++count;
    within = !blank;
  }
  return count;
}

// Ends of sentences: . ! or ? before white space or the end.
int64_t count_sentences(std::string_view text) {
  int64_t count = 0;
  bool open = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool ends = text[i] == '.' || text[i] == '!' || text[i] == '?';
    if (!ends) {
      open = open || is_letter(text[i]) || static_cast<unsigned char>(text[i]) >= 0x80;
      continue;
    }
    if (!open || (i + 1 < text.size() && text[i + 1] != ' ' && text[i + 1] != '\n')) continue;
    ++count;
    open = false;
  }
  return count + (open ? 1 : 0);
}

int64_t count_of(std::string_view text, std::string_view word) {
  if (word.empty()) return 0;
  int64_t count = 0;
  for (size_t at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at + word.size())) {
    const auto is_part = [&](size_t i) { return i < text.size() && is_letter(text[i]); };
    if ((at == 0 || !is_part(at - 1)) && !is_part(at + word.size())) ++count;
  }
  return count;
}

// Published as 3 and as 3.0.
int64_t whole_number(const Json& arguments, std::string_view key) {
  return static_cast<int64_t>(arguments.number(key).value_or(0));
}

// "at least" and "less than", as the published set writes relations.
bool relates(int64_t found, const Json& arguments, std::string_view count_key,
             std::string_view relation_key) {
  const int64_t wanted = whole_number(arguments, count_key);
  const std::string relation = arguments.string(relation_key).value_or("at least");
  return relation == "less than" ? found < wanted : found >= wanted;
}

// Paragraphs with an empty line between them: so many, the n-th of which begins with a word.
bool has_first_word(const Json& arguments, std::string_view answer) {
  const std::vector<std::string_view> paragraphs = parts(answer, "\n\n");
  const int64_t nth = whole_number(arguments, "nth_paragraph");
  const bool are_all = std::ssize(paragraphs) == whole_number(arguments, "num_paragraphs");
  if (!are_all || nth < 1 || nth > std::ssize(paragraphs)) return false;
  std::string_view begin = paragraphs[static_cast<size_t>(nth - 1)];
  begin.remove_prefix(std::min(begin.find_first_not_of("\"'*_#( "), begin.size()));
  const std::string word = lowered(*arguments.string("first_word"));
  const std::string low = lowered(begin.substr(0, word.size() + 1));
  return low.starts_with(word) && (low.size() == word.size() || !is_letter(low.back()));
}

// Sections, each begun by the splitter and its number or letter: "Section 1", "PART B". What is
// mentioned again counts once.
bool has_sections(const Json& arguments, std::string_view answer) {
  const std::string splitter = lowered(trimmed(*arguments.string("section_spliter")));
  std::vector<std::string> names;
  for (std::string_view line : parts(answer, "\n")) {
    line.remove_prefix(std::min(line.find_first_not_of("*_# "), line.size()));
    const std::string low = lowered(line);
    if (splitter.empty() || !low.starts_with(splitter)) continue;
    const std::string_view rest = std::string_view(low).substr(splitter.size());
    const std::string_view name = trimmed(rest).substr(0, trimmed(rest).find_first_of(" \t:.*-"));
    if (rest.empty() || rest.front() != ' ' || name.empty()) continue;
    if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
  }
  return std::ssize(names) >= whole_number(arguments, "num_sections");
}

// Words of two letters or more without a small one; "I" and "A" are capitals in any text.
int64_t count_capital_words(std::string_view text) {
  int64_t count = 0;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    while (end < text.size() && is_letter(text[end])) ++end;
    const std::string_view word = text.substr(begin, end - begin);
    const bool has_small = std::ranges::any_of(word, [](char c) { return c >= 'a' && c <= 'z'; });
    count += word.size() > 1 && !has_small ? 1 : 0;
    begin = end + 1;
  }
  return count;
}

// Two answers that are not the same, with six asterisks between them.
bool has_two_responses(const Json& /*arguments*/, std::string_view answer) {
  const std::vector<std::string_view> responses = parts(answer, "******");
  return responses.size() == 2 && responses[0] != responses[1];
}

bool repeats_prompt(const Json& arguments, std::string_view answer) {
  return lowered(trimmed(answer))
      .starts_with(lowered(trimmed(*arguments.string("prompt_to_repeat"))));
}

// One of three sentences that the prompt gives.
bool is_constrained(const Json& /*arguments*/, std::string_view answer) {
  constexpr std::string_view kOptions[] = {"my answer is yes.", "my answer is no.",
                                           "my answer is maybe."};
  const std::string low = lowered(answer);
  return std::ranges::any_of(
      kOptions, [&](std::string_view option) { return low.find(option) != std::string::npos; });
}

bool is_in_language(const Json& arguments, std::string_view answer) {
  const std::string_view found = likeliest_language(answer);
  return found == arguments.string("language");
}

bool has_keywords(const Json& arguments, std::string_view answer) {
  const std::string low = lowered(answer);
  return std::ranges::all_of(arguments.find("keywords")->as_array(), [&](const Json& word) {
    return low.find(lowered(word.as_string())) != std::string::npos;
  });
}

bool lacks_words(const Json& arguments, std::string_view answer) {
  const std::string low = lowered(answer);
  return std::ranges::none_of(arguments.find("forbidden_words")->as_array(), [&](const Json& word) {
    return count_of(low, lowered(word.as_string())) > 0;
  });
}

bool has_bullets(const Json& arguments, std::string_view answer) {
  int64_t bullets = 0;
  for (const std::string_view line : parts(answer, "\n")) {
    bullets += (line.starts_with("* ") || line.starts_with("- ")) ? 1 : 0;
  }
  return bullets == whole_number(arguments, "num_bullets");
}

bool has_placeholders(const Json& arguments, std::string_view answer) {
  int64_t found = 0;
  for (size_t at = answer.find('['); at != std::string_view::npos; at = answer.find('[', at + 1)) {
    const size_t end = answer.find(']', at);
    if (end != std::string_view::npos && end > at + 1) ++found;
  }
  return found >= whole_number(arguments, "num_placeholders");
}

bool has_title(const Json& /*arguments*/, std::string_view answer) {
  const size_t begin = answer.find("<<");
  const size_t end = answer.find(">>", begin == std::string_view::npos ? 0 : begin);
  return begin != std::string_view::npos && end != std::string_view::npos && end > begin + 2;
}

bool is_without_letters(std::string_view answer, char first, char last) {
  return std::ranges::none_of(answer, [&](char c) { return c >= first && c <= last; });
}

struct Check {
  std::vector<std::pair<std::string_view, char>> arguments;  // name and kind: i, s, a (of strings)
  std::function<bool(const Json& arguments, std::string_view answer)> holds;
};

using Checks = std::map<std::string_view, Check>;

// Which words an answer has, and how many.
Checks checks_of_words() {
  return {
      {"keywords:existence", {{{"keywords", 'a'}}, has_keywords}},
      {"keywords:forbidden_words", {{{"forbidden_words", 'a'}}, lacks_words}},
      {"keywords:frequency",
       {{{"keyword", 's'}, {"frequency", 'i'}},
        [](const Json& arguments, std::string_view answer) {
          return relates(count_of(lowered(answer), lowered(*arguments.string("keyword"))),
                         arguments, "frequency", "relation");
        }}},
      {"keywords:letter_frequency",
       {{{"letter", 's'}, {"let_frequency", 'i'}},
        [](const Json& arguments, std::string_view answer) {
          const std::string letter = lowered(*arguments.string("letter"));
          const std::string low = lowered(answer);
          const int64_t found = letter.empty() ? 0 : std::ranges::count(low, letter.front());
          return relates(found, arguments, "let_frequency", "let_relation");
        }}},
      {"length_constraints:number_words",
       {{{"num_words", 'i'}},
        [](const Json& arguments, std::string_view answer) {
          return relates(count_words(answer), arguments, "num_words", "relation");
        }}},
      {"length_constraints:number_sentences",
       {{{"num_sentences", 'i'}},
        [](const Json& arguments, std::string_view answer) {
          return relates(count_sentences(answer), arguments, "num_sentences", "relation");
        }}},
      {"length_constraints:number_paragraphs",
       {{{"num_paragraphs", 'i'}},
        [](const Json& arguments, std::string_view answer) {
          return std::ssize(parts(answer, "***")) == whole_number(arguments, "num_paragraphs");
        }}},
  };
}

// Which answers there are, in which language, and what they begin with.
Checks checks_of_content() {
  return {
      {"language:response_language", {{{"language", 's'}}, is_in_language}},
      {"length_constraints:nth_paragraph_first_word",
       {{{"num_paragraphs", 'i'}, {"nth_paragraph", 'i'}, {"first_word", 's'}}, has_first_word}},
      {"detectable_format:constrained_response", {{}, is_constrained}},
      {"detectable_format:multiple_sections",
       {{{"section_spliter", 's'}, {"num_sections", 'i'}}, has_sections}},
      {"combination:two_responses", {{}, has_two_responses}},
      {"combination:repeat_prompt", {{{"prompt_to_repeat", 's'}}, repeats_prompt}},
      {"change_case:capital_word_frequency",
       {{{"capital_frequency", 'i'}},
        [](const Json& arguments, std::string_view answer) {
          return relates(count_capital_words(answer), arguments, "capital_frequency",
                         "capital_relation");
        }}},
  };
}

// How an answer is laid out and written.
Checks checks_of_form() {
  return {
      {"detectable_content:number_placeholders", {{{"num_placeholders", 'i'}}, has_placeholders}},
      {"detectable_content:postscript",
       {{{"postscript_marker", 's'}},
        [](const Json& arguments, std::string_view answer) {
          return lowered(answer).find(lowered(*arguments.string("postscript_marker"))) !=
                 std::string::npos;
        }}},
      {"detectable_format:number_bullet_lists", {{{"num_bullets", 'i'}}, has_bullets}},
      {"detectable_format:title", {{}, has_title}},
      {"detectable_format:json_format",
       {{},
        [](const Json&, std::string_view answer) { return Json::parse(json_in(answer)).ok(); }}},
      {"detectable_format:number_highlighted_sections",
       {{{"num_highlights", 'i'}},
        [](const Json& arguments, std::string_view answer) {
          int64_t found = 0;
          for (size_t at = answer.find('*'); at != std::string_view::npos;) {
            const size_t end = answer.find('*', at + 1);
            if (end == std::string_view::npos) break;
            if (!trimmed(answer.substr(at + 1, end - at - 1)).empty()) ++found;
            at = answer.find('*', end + 1);
          }
          return found >= whole_number(arguments, "num_highlights");
        }}},
      {"change_case:english_lowercase",
       {{},
        [](const Json&, std::string_view answer) { return is_without_letters(answer, 'A', 'Z'); }}},
      {"change_case:english_capital",
       {{},
        [](const Json&, std::string_view answer) { return is_without_letters(answer, 'a', 'z'); }}},
      {"punctuation:no_comma",
       {{},
        [](const Json&, std::string_view answer) {
          return answer.find(',') == std::string_view::npos;
        }}},
      {"startend:quotation",
       {{},
        [](const Json&, std::string_view answer) {
          const std::string_view text = trimmed(answer);
          return text.size() > 1 && text.front() == '"' && text.back() == '"';
        }}},
      {"startend:end_checker",
       {{{"end_phrase", 's'}},
        [](const Json& arguments, std::string_view answer) {
          std::string_view text = trimmed(answer);
          if (text.ends_with('"')) text.remove_suffix(1);
          return lowered(text).ends_with(lowered(trimmed(*arguments.string("end_phrase"))));
        }}},
  };
}

const Checks& checks() {
  static const Checks kChecks = [] {
    Checks all = checks_of_words();
    all.merge(checks_of_form());
    all.merge(checks_of_content());
    return all;
  }();
  return kChecks;
}

bool is_of_kind(const Json& value, char kind) {
  if (kind == 's') return value.is_string();
  if (kind == 'i') return value.is_integer() || value.is_number();
  return value.is_array() &&
         std::ranges::all_of(value.as_array(), [](const Json& one) { return one.is_string(); });
}

}  // namespace

Result<void> check_instruction(const Instruction& instruction) {
  const auto found = checks().find(instruction.id);
  if (found == checks().end()) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("the instruction '{}' is none that is checked here; those are: {}",
                             instruction.id, fmt::join(known_instructions(), ", "))};
  }
  for (const auto& [name, kind] : found->second.arguments) {
    const Json* value = instruction.arguments.find(name);
    if (value == nullptr || !is_of_kind(*value, kind)) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("the instruction '{}' wants `{}`, {}", instruction.id, name,
                               kind == 's'   ? "a string"
                               : kind == 'i' ? "a number"
                                             : "an array of strings")};
    }
  }
  if (instruction.id == "language:response_language") {
    const std::vector<std::string_view> languages = known_languages();
    const std::string language = *instruction.arguments.string("language");
    if (std::ranges::find(languages, language) == languages.end()) {
      return Error{ErrorCode::kUnsupported,
                   fmt::format("the language '{}' is none that is recognised here; those are: {}",
                               language, fmt::join(languages, ", "))};
    }
  }
  return {};
}

bool follows_instruction(const Instruction& instruction, std::string_view answer) {
  return checks().at(instruction.id).holds(instruction.arguments, answer);
}

std::vector<std::string_view> known_instructions() {
  std::vector<std::string_view> names;
  for (const auto& [name, check] : checks()) names.push_back(name);
  return names;
}

}  // namespace pelton::eval
