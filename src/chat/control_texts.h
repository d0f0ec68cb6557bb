// The tokens that a vocabulary has added by their texts, to be found in what a template printed.
// Immutable; any thread.
#pragma once

#include <vector>

#include "base/token_id.h"
#include "jinja/text.h"
#include "tokenizer/special_texts.h"
#include "tokenizer/tokenizer.h"

namespace pelton::chat {

class ControlTexts {
 public:
  // `tokenizer` outlives it.
  explicit ControlTexts(const tokenizer::Tokenizer& tokenizer);

  // An added token's text becomes that token where no byte of it is input, with the white space
  // beside it that belongs to it, whosever that is; everything else is encoded as ordinary text.
  void encode(const jinja::Text& text, std::vector<TokenId>& out) const;

 private:
  const tokenizer::Tokenizer& tokenizer_;
  tokenizer::SpecialTexts texts_;
};

}  // namespace pelton::chat
