#include "bench/word_errors.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/utf8.h"
#include "tokenizer/normal_form.h"
#include "tokenizer/unicode_class.h"

namespace pelton::bench {
namespace {

using tokenizer::UnicodeClass;

enum class Kind { kWord, kApostrophe, kBetween };

Kind kind_of(uint32_t code_point) {
  constexpr uint32_t kCurly = 0x2019;
  if (code_point == '\'' || code_point == kCurly) return Kind::kApostrophe;
  switch (tokenizer::unicode_class(code_point)) {
    case UnicodeClass::kUpper:
    case UnicodeClass::kLower:
    case UnicodeClass::kCaseless:
    case UnicodeClass::kMark:
    case UnicodeClass::kNumber:
      return Kind::kWord;
    default:
      return Kind::kBetween;
  }
}

}  // namespace

std::vector<std::string> spoken_words(std::string_view text) {
  const std::string known = base::replace_invalid_utf8(text);
  std::string storage;
  const std::string lower = tokenizer::lower_case(tokenizer::normal_form_c(known, storage));
  std::vector<std::string> words;
  std::string word;
  bool apostrophe = false;  // behind the word; part of it if more follows
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(std::exchange(word, {}));
    apostrophe = false;
  };
  for (size_t at = 0; at < lower.size();) {
    const base::Utf8Step next = base::utf8_step(std::string_view(lower).substr(at));
    const Kind kind = kind_of(next.code_point);
    if (kind == Kind::kWord) {
      if (std::exchange(apostrophe, false)) word += '\'';
      word += lower.substr(at, next.bytes);
    } else if (kind == Kind::kApostrophe && !word.empty() && !apostrophe) {
      apostrophe = true;
    } else {
      end_word();
    }
    at += next.bytes;
  }
  end_word();
  return words;
}

double WordErrors::rate() const {
  return words == 0 ? 0.0 : static_cast<double>(errors()) / static_cast<double>(words);
}

WordErrors& WordErrors::operator+=(const WordErrors& other) {
  substituted += other.substituted;
  left_out += other.left_out;
  added += other.added;
  words += other.words;
  return *this;
}

// Levenshtein's distance by rows; each cell has the counts of its best path, so that no table is
// kept to go back through.
WordErrors word_errors(const std::vector<std::string>& reference,
                       const std::vector<std::string>& heard) {
  std::vector<WordErrors> row(heard.size() + 1);
  for (size_t j = 1; j <= heard.size(); ++j) row[j].added = j;
  for (const std::string& word : reference) {
    WordErrors diagonal = row[0];
    ++row[0].left_out;
    for (size_t j = 1; j <= heard.size(); ++j) {
      WordErrors best = diagonal;
      if (word != heard[j - 1]) ++best.substituted;
      WordErrors left_out = row[j];
      ++left_out.left_out;
      WordErrors added = row[j - 1];
      ++added.added;
      if (left_out.errors() < best.errors()) best = left_out;
      if (added.errors() < best.errors()) best = added;
      diagonal = std::exchange(row[j], best);
    }
  }
  WordErrors result = row[heard.size()];
  result.words = reference.size();
  return result;
}

}  // namespace pelton::bench
