// Text of a known number of tokens. A tokenizer lies outside this room: its words, those that stay
// single tokens wherever they stand between spaces, are known to whoever has it; without one, a
// list of short English words serves, each of which is one token to every large vocabulary we know
// of, but that is not certain, so lengths are then called estimates. Immutable; any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "workload/draws.h"

namespace pelton::workload {

class Vocabulary {
 public:
  struct Word {
    std::string text;  // with its leading space: " wheel"
    TokenId id = -1;   // -1: not known
  };

  // Built-in words; counts are estimates.
  Vocabulary();
  // At least one word. `count` says how many tokens a text has.
  Vocabulary(std::vector<Word> words, std::function<int(std::string_view)> count);

  bool exact() const { return count_ != nullptr; }
  size_t word_count() const { return words_.size(); }

  // Tokens of a text: counted, or taken to be four bytes each.
  int count(std::string_view text) const;

  struct Text {
    std::string text;
    std::vector<TokenId> ids;  // empty where ids are not known
  };
  // Appends `tokens` random words.
  void append(Text& text, int tokens, Draws& draws) const;

 private:
  std::vector<Word> words_;
  bool ids_are_places_ = false;  // no word has a text, each one's id is its place
  std::function<int(std::string_view)> count_;
};

}  // namespace pelton::workload
