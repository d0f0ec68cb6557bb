// For tests, fuzzers and benchmarks: a vocabulary that is there at once. The 256 single bytes, some
// words of Harmony's headers, and o200k_harmony's control tokens at their own ids.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace pelton::chat {

inline constexpr std::array<std::string_view, 20> kTinyWords = {
    "assistant", "analysis", "comment", "ary",          "final",        " to=", "functions",
    ".get",      "browser",  ".search", "python",       " json",        "json", " code",
    "user",      " Hello",   " world",  "\xF0\x9F\x92", "to=functions", "<|"};
inline constexpr TokenId kTinyOrdinaryTokens = 256 + static_cast<TokenId>(kTinyWords.size());

inline std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j) {
      bits = bits << 8 | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0u);
    }
    for (size_t j = 0; j < 4; ++j) {
      out += i + j <= bytes.size() ? kDigits[bits >> (18 - 6 * j) & 63] : '=';
    }
  }
  return out;
}

inline tokenizer::Tokenizer tiny_tokenizer() {
  std::string ranks;
  int rank = 0;
  const auto add = [&](std::string_view bytes) {
    ranks += base64(bytes) + ' ' + std::to_string(rank++) + '\n';
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  for (const std::string_view word : kTinyWords) add(word);
  return tokenizer::Tokenizer::from_tiktoken(ranks, "tiny").value();
}

}  // namespace pelton::chat
