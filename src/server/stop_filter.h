// Cuts a text at the first stop string, and lets text out as soon as it cannot be part of one: a
// stop string that crosses tokens is never leaked. Linear in the text (Knuth-Morris-Pratt). One
// owner.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pelton::server {

class StopFilter {
 public:
  enum class StopText { kCut, kKept };  // whether the stop string itself ends the text

  StopFilter(std::vector<std::string> stops, StopText stop_text);

  // Appends to `out` what has become certain. Once stopped() nothing more comes out.
  void push(std::string_view text, std::string& out);
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
  const StopText stop_text_;
  std::string held_;  // the longest suffix that could begin a stop string
  bool stopped_ = false;
  std::string matched_;
};

}  // namespace pelton::server
