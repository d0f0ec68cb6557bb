// The split pattern of o200k_base (and so of gpt-oss), by hand: every character is looked at a
// bounded number of times, whatever the text.
#pragma once

#include "tokenizer/splitter.h"

namespace pelton::tokenizer {

// The pattern as tokenizer.json files state it; a file with exactly this pattern gets the scanner.
extern const std::string_view kO200kPattern;

class O200kSplitter : public Splitter {
 public:
  void split(std::string_view text, base::FunctionRef<void(std::string_view)> piece) const override;
};

}  // namespace pelton::tokenizer
