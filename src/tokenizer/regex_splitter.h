// Splits text by regular expressions from a tokenizer.json, with PCRE2 (Unicode classes, \s as
// White_Space). Immutable; any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "tokenizer/splitter.h"

namespace pelton::tokenizer {

class RegexSplitter : public Splitter {
 public:
  // A later pattern cuts the pieces of the earlier. What lies between two matches is a piece too.
  // Error: kBadCheckpoint with PCRE2's words, the offset, and the pattern's index in `field`.
  static Result<std::unique_ptr<RegexSplitter>> compile(const std::vector<std::string>& patterns);

  ~RegexSplitter() override;

  // A pattern that runs into PCRE2's match limit on this text (it backtracks without end) cuts no
  // further: the rest of the text is one piece, so that the work stays bounded and nothing is lost.
  void split(std::string_view text, base::FunctionRef<void(std::string_view)> piece) const override;

 private:
  struct Pattern;
  class Search;
  explicit RegexSplitter(std::vector<Pattern> patterns);

  std::vector<Pattern> patterns_;
};

}  // namespace pelton::tokenizer
