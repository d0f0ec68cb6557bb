// Token bytes in, UTF-8 text out, as early as it is certain: never half a code point, never a
// replacement character that the next token would have completed. One owner.
#pragma once

#include <string>
#include <string_view>

namespace pelton::tokenizer {

class IncrementalDecoder {
 public:
  // Appends to `out` what has become certain.
  void push(std::string_view token_bytes, std::string& out);

  // The end of the text: what was held back becomes U+FFFD.
  void finish(std::string& out);

  bool empty() const { return held_.empty(); }

 private:
  std::string held_;  // at most 3 bytes: a prefix of one code point
};

}  // namespace pelton::tokenizer
