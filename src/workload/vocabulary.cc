#include "workload/vocabulary.h"

#include <algorithm>
#include <climits>
#include <span>
#include <utility>

#include "base/check.h"

namespace pelton::workload {
namespace {

// Common and short: a single token, with the space before it, in byte-level vocabularies of 50 000
// tokens and more.
constexpr std::string_view kWords =
    " the of and to in is that for it as was with be by on not he his but at are this have from or "
    "had an they which one you were all her she there would their we him been has when who will no "
    "more if out so up said what its about than into them can only other time new some could these "
    "two may first then do any like my now over such our man me even most made after also did many "
    "off before must well back through years much where your way down should because long each "
    "just "
    "state those people too mr how little good world make very year still see own work men day get "
    "here old life both between being under three never know same last another while us might "
    "great "
    "go come since against right came take used himself few house use during without again place "
    "american around however home small found thought went say part once general high upon school "
    "every war does got united left number course until always away something fact water less "
    "public put think almost hand enough far took head yet government system set told nothing "
    "night "
    "end why called find going look asked later point knew next city business give group toward "
    "young days let room word case force wheel jet power field line page light sound river north "
    "south east west green blue red white black open close turn move hold stone paper table music";

std::vector<Vocabulary::Word> builtin_words() {
  std::vector<Vocabulary::Word> words;
  size_t at = 0;
  while (at < kWords.size()) {
    const size_t end = std::min(kWords.find(' ', at + 1), kWords.size());
    words.push_back({.text = std::string(kWords.substr(at, end - at))});
    at = end;
  }
  return words;
}

bool are_ids_places(const std::vector<Vocabulary::Word>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (!words[i].text.empty() || words[i].id != static_cast<TokenId>(i)) return false;
  }
  return true;
}

}  // namespace

Vocabulary::Vocabulary() : words_(builtin_words()) {}

Vocabulary::Vocabulary(std::vector<Word> words, std::function<int(std::string_view)> count)
    : words_(std::move(words)), count_(std::move(count)) {
  CHECK(!words_.empty() && count_ != nullptr);
  ids_are_places_ = are_ids_places(words_);
}

int Vocabulary::count(std::string_view text) const {
  if (count_) return count_(text);
  const size_t about = (text.size() + 3) / 4;
  return static_cast<int>(std::min<size_t>(about, INT_MAX));
}

void Vocabulary::append(Text& text, int tokens, Draws& draws) const {
  const auto last = static_cast<int64_t>(words_.size()) - 1;
  if (ids_are_places_) {
    // A long prompt of a large vocabulary: no word is looked up.
    const size_t before = text.ids.size();
    text.ids.resize(before + static_cast<size_t>(std::max(tokens, 0)));
    for (TokenId& id : std::span(text.ids).subspan(before)) {
      id = static_cast<TokenId>(draws.integer(0, last));
    }
    return;
  }
  for (int i = 0; i < tokens; ++i) {
    const Word& word = words_[static_cast<size_t>(draws.integer(0, last))];
    text.text += word.text;
    if (word.id >= 0) text.ids.push_back(word.id);
  }
}

}  // namespace pelton::workload
