#include "bench/token_words.h"

#include <algorithm>
#include <climits>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace pelton::bench {
namespace {

constexpr size_t kWordsMax = 20'000;
constexpr size_t kWordsMin = 16;

// " wheel": a blank and small letters, which every pre-tokenizer we know keeps in one piece.
bool looks_like_a_word(std::string_view text) {
  return text.size() >= 3 && text.front() == ' ' &&
         std::all_of(text.begin() + 1, text.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

constexpr size_t kLettersMax = 4;

bool is_letters(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
}

// Tokens that `fits` and that stay what they are when they stand twice.
template <typename Fits>
std::vector<workload::Vocabulary::Word> stable_words(const tokenizer::Tokenizer& tokenizer,
                                                     const Fits& fits) {
  std::vector<workload::Vocabulary::Word> words;
  std::vector<TokenId> encoded;
  for (TokenId id = 0; id < tokenizer.vocab_size() && words.size() < kWordsMax; ++id) {
    if (tokenizer.is_special(id) || !fits(tokenizer.bytes(id))) continue;
    const std::string word(tokenizer.bytes(id));
    encoded.clear();
    tokenizer.encode(word + word, encoded);
    if (encoded == std::vector<TokenId>{id, id}) words.push_back({.text = word, .id = id});
  }
  return words;
}

// Whether a text of many words is read as those words.
bool stay_apart(const tokenizer::Tokenizer& tokenizer,
                const std::vector<workload::Vocabulary::Word>& words) {
  workload::Draws draws(1, 1);
  std::string text;
  std::vector<TokenId> ids;
  for (int i = 0; i < 2000 && !words.empty(); ++i) {
    const int64_t chosen = draws.integer(0, static_cast<int64_t>(words.size()) - 1);
    text += words[static_cast<size_t>(chosen)].text;
    ids.push_back(words[static_cast<size_t>(chosen)].id);
  }
  return tokenizer.encode(text) == ids;
}

using Words = std::vector<workload::Vocabulary::Word>;

// Empty: too few, or they join.
template <typename Fits>
Words usable_words(const tokenizer::Tokenizer& tokenizer, const Fits& fits) {
  Words words = stable_words(tokenizer, fits);
  if (words.size() < kWordsMin || !stay_apart(tokenizer, words)) words.clear();
  return words;
}

// A vocabulary without words, a toy's or a synthetic one, has letters, or runs of so many letters.
// Of several lengths they may join: with merges by length "ab" and "cde" are "ab", "cd" and "e".
Words letter_words(const tokenizer::Tokenizer& tokenizer) {
  Words words = usable_words(tokenizer, is_letters);
  if (!words.empty()) return words;
  for (size_t length = 1; length <= kLettersMax; ++length) {
    Words found = usable_words(tokenizer, [length](std::string_view text) {
      return text.size() == length && is_letters(text);
    });
    if (found.size() > words.size()) words = std::move(found);
  }
  return words;
}

}  // namespace

Result<workload::Vocabulary> token_words(const tokenizer::Tokenizer& tokenizer) {
  Words words = usable_words(tokenizer, looks_like_a_word);
  if (words.empty()) words = letter_words(tokenizer);
  if (words.empty()) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("the tokenizer has fewer than {} words of one token that stay apart "
                             "side by side; without --tokenizer lengths are estimates",
                             kWordsMin),
                 "tokenizer"};
  }
  return workload::Vocabulary(std::move(words), [&tokenizer](std::string_view text) {
    return static_cast<int>(std::min<size_t>(tokenizer.encode(text).size(), INT_MAX));
  });
}

}  // namespace pelton::bench
