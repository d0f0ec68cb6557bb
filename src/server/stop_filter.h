// Cuts a text at the first stop string, and lets text out as soon as it cannot be part of one: a
// stop string that crosses tokens is never leaked. Linear in the text (Knuth-Morris-Pratt). One
// owner.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/generation_fields.h"

namespace pelton::server {

// What ends a text.
struct StopStrings {
  enum class Itself { kCut, kKept };  // whether the stop string itself ends the text

  std::vector<std::string> strings;
  Itself itself = Itself::kCut;
  int64_t min_tokens = 0;  // what so many first tokens of an answer say is part of none
};
StopStrings stop_strings(const api::GenerationFields& fields);

class StopFilter {
 public:
  explicit StopFilter(const StopStrings& stops);

  // `sampled`: the answer's tokens so far, those of `text` among them. Appends to `out` what has
  // become certain. Once stopped() nothing more comes out.
  void push(std::string_view text, int64_t sampled, std::string& out);
  // The end of the text: what was held back was no stop string.
  void finish(std::string& out);

  bool stops_nothing() const { return needles_.empty(); }  // all comes out as it went in
  bool stopped() const { return stopped_; }
  const std::string& matched() const { return matched_; }  // the stop string that ended it

 private:
  struct Needle {
    std::string text;
    std::vector<size_t> fallback;  // the longest proper border of each prefix
    size_t matched = 0;
  };

  // Whether a needle ends with this byte.
  bool advance(char byte);

  std::vector<Needle> needles_;
  const StopStrings::Itself itself_;
  const int64_t min_tokens_;
  std::string held_;  // the longest suffix that could begin a stop string
  bool stopped_ = false;
  std::string matched_;
};

}  // namespace pelton::server
