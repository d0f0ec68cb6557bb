// SentencePiece's unigram model: of all ways to write a text in pieces the one whose pieces'
// log-probabilities are the largest sum (Viterbi). A character that no piece begins with is an
// unknown one, which costs more than any piece. Immutable once filled; any thread.
//
// Source: T. Kudo, "Subword Regularization", arXiv 1804.10959; sentencepiece's
// src/unigram_model.cc.
//
//   pieces a -1, b -1, ab -1.5; text "aab": a+a+b = -3, a+ab = -2.5 -> a, ab
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "tokenizer/special_texts.h"

namespace pelton::tokenizer {

class Unigram {
 public:
  // False if that piece is there already. `piece` is not empty.
  [[nodiscard]] bool add(std::string_view piece, TokenId id, float score);

  // Appends the pieces of `text`, valid UTF-8; kNoToken for an unknown character, with its place.
  struct Part {
    TokenId id;
    std::string_view text;
  };
  void split(std::string_view text, std::vector<Part>& out) const;

 private:
  SpecialTexts pieces_;
  std::vector<float> scores_;  // by id
  float least_ = 0;
};

}  // namespace pelton::tokenizer
