// Tokens with times as words with times: split where the language splits words, punctuation beside
// its word (openai/whisper, timing.py and tokenizer.py). Pure.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "models/whisper_alignment.h"
#include "speech/transcript.h"
#include "tokenizer/tokenizer.h"

namespace pelton::node {

// `text`: tokens without timestamps, as many as `aligned`. `language`: "en"; of those that write no
// blanks between words each character is one.
std::vector<speech::Word> spoken_words(std::span<const TokenId> text,
                                       std::span<const models::AlignedToken> aligned,
                                       const tokenizer::Tokenizer& tokenizer,
                                       std::string_view language);

}  // namespace pelton::node
