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

}  // namespace

Result<workload::Vocabulary> token_words(const tokenizer::Tokenizer& tokenizer) {
  std::vector<workload::Vocabulary::Word> words;
  std::vector<TokenId> encoded;
  for (TokenId id = 0; id < tokenizer.vocab_size() && words.size() < kWordsMax; ++id) {
    if (tokenizer.is_special(id) || !looks_like_a_word(tokenizer.bytes(id))) continue;
    const std::string word(tokenizer.bytes(id));
    encoded.clear();
    tokenizer.encode(word + word, encoded);
    if (encoded == std::vector<TokenId>{id, id}) words.push_back({.text = word, .id = id});
  }
  if (words.size() < kWordsMin) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("the tokenizer has only {} words of one token, {} are needed",
                             words.size(), kWordsMin),
                 "tokenizer"};
  }
  return workload::Vocabulary(std::move(words), [&tokenizer](std::string_view text) {
    return static_cast<int>(std::min<size_t>(tokenizer.encode(text).size(), INT_MAX));
  });
}

}  // namespace pelton::bench
