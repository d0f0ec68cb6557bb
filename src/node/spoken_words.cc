#include "node/spoken_words.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"

namespace pelton::node {
namespace {

constexpr std::array<std::string_view, 6> kWithoutBlanks = {"zh", "ja", "th", "lo", "my", "yue"};
constexpr std::string_view kPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
// What belongs to the word behind it, and to the word before it.
constexpr std::array<std::string_view, 9> kBefore = {"\"", "'", "“", "¿", "(", "[", "{", "-", "‘"};
constexpr std::array<std::string_view, 18> kBehind = {"\"", "'",  ".", "。", ",",  "，",
                                                      "!",  "！", "?", "？", ":",  "：",
                                                      "”",  ")",  "]", "}",  "、", "’"};

// The pieces of a word that are whole characters.
struct Piece {
  speech::Word word;
  double probabilities = 0.0;  // summed over its tokens
  int tokens = 0;
};

std::string_view stripped(std::string_view text) {
  const size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

bool ends_within_character(std::string_view text) {
  while (!text.empty()) {
    const base::Utf8Step step = base::utf8_step(text);
    if (step.kind == base::Utf8Step::Kind::kIncomplete) return true;
    text.remove_prefix(step.bytes);
  }
  return false;
}

std::vector<Piece> pieces_of(std::span<const TokenId> text,
                             std::span<const models::AlignedToken> aligned,
                             const tokenizer::Tokenizer& tokenizer) {
  std::vector<Piece> pieces;
  bool is_open = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!is_open) pieces.push_back({.word = {.text = {}, .begin_s = aligned[i].begin_s}});
    Piece& piece = pieces.back();
    piece.word.text += tokenizer.bytes(text[i]);
    piece.word.end_s = aligned[i].end_s;
    piece.probabilities += aligned[i].probability;
    ++piece.tokens;
    is_open = ends_within_character(piece.word.text);
  }
  return pieces;
}

bool begins_word(const Piece& piece) {
  const std::string_view text = piece.word.text;
  return text.starts_with(' ') || kPunctuation.find(stripped(text)) != std::string_view::npos;
}

void join(Piece& to, const Piece& from) {
  to.word.text += from.word.text;
  to.word.end_s = from.word.end_s;
  to.probabilities += from.probabilities;
  to.tokens += from.tokens;
}

bool is_one_of(std::string_view text, std::span<const std::string_view> known) {
  return std::ranges::find(known, text) != known.end();
}

// The times stay the word's.
void merge_punctuation(std::vector<speech::Word>& words) {
  for (size_t i = words.size(); i-- > 1;) {
    speech::Word& before = words[i - 1];
    if (!before.text.starts_with(' ') || !is_one_of(stripped(before.text), kBefore)) continue;
    words[i].text = before.text + words[i].text;
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(i - 1));
  }
  for (size_t i = 1; i < words.size();) {
    speech::Word& before = words[i - 1];
    if (before.text.ends_with(' ') || !is_one_of(words[i].text, kBehind)) {
      ++i;
      continue;
    }
    before.text += words[i].text;
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

}  // namespace

std::vector<speech::Word> spoken_words(std::span<const TokenId> text,
                                       std::span<const models::AlignedToken> aligned,
                                       const tokenizer::Tokenizer& tokenizer,
                                       std::string_view language) {
  CHECK(text.size() == aligned.size());
  const bool has_blanks = !is_one_of(language, kWithoutBlanks);
  std::vector<Piece> words;
  for (const Piece& piece : pieces_of(text, aligned, tokenizer)) {
    if (words.empty() || !has_blanks || begins_word(piece)) {
      words.push_back(piece);
    } else {
      join(words.back(), piece);
    }
  }
  std::vector<speech::Word> made;
  for (Piece& word : words) {
    word.word.probability = word.probabilities / word.tokens;
    made.push_back(std::move(word.word));
  }
  merge_punctuation(made);
  return made;
}

}  // namespace pelton::node
