// How far a transcript is from what was said: the word error rate, as speech recognition counts it:
// substituted, left out and added words, by the fewest edits, over the words of the reference. Pure
// functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::bench {

// Words as they are compared: runs of letters, marks, digits and apostrophes between letters, in
// lower case ("It's 3 p.m." -> it's, 3, p, m), in Unicode's form C. What is no UTF-8 ends a word.
// Scripts without blanks come out as whole runs: their rates say little.
std::vector<std::string> spoken_words(std::string_view text);

struct WordErrors {
  size_t substituted = 0;
  size_t left_out = 0;
  size_t added = 0;
  size_t words = 0;  // of the reference

  size_t errors() const { return substituted + left_out + added; }
  // May be above 1. 0 where the reference has no words.
  double rate() const;
  WordErrors& operator+=(const WordErrors& other);
};

// Time and memory go with the product of the two lengths.
WordErrors word_errors(const std::vector<std::string>& reference,
                       const std::vector<std::string>& heard);

}  // namespace pelton::bench
