// For tests and fuzzers: a vocabulary of single bytes and some runs of letters with ChatML's
// control tokens and Qwen3's markers.
#pragma once

#include <utility>

#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json_writer.h"

namespace pelton::chat {

inline tokenizer::Tokenizer tiny_chatml_tokenizer() {
  return tokenizer::Tokenizer::from_json(
             tokenizer::synthetic_tokenizer_for("qwen3", 300).value().json, "tiny")
      .value();
}

}  // namespace pelton::chat
