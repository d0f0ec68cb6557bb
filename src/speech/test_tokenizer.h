// For tests: a vocabulary like Orpheus', small: single bytes, ChatML's control tokens, then
// <|eot_id|> and <custom_token_0> to the last code of three books. Tests only.
#pragma once

#include <string>

#include <fmt/format.h>

#include "base/json.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json_writer.h"

namespace pelton::speech {

inline constexpr int kTestBookSize = 64;
inline constexpr TokenId kTestEndOfText = 300;
inline constexpr TokenId kTestBase = 301;
inline constexpr int kTestVocabulary = kTestBase + 10 + 7 * kTestBookSize;

inline tokenizer::Tokenizer test_tokenizer() {
  Json json = Json::parse(tokenizer::synthetic_tokenizer_for("qwen3", 300).value().json).value();
  Json::Array added = json.find("added_tokens")->as_array();
  const auto add = [&](TokenId id, std::string text) {
    Json token = added.front();
    token.set("id", id).set("content", std::move(text)).set("special", true);
    added.push_back(std::move(token));
  };
  add(kTestEndOfText, "<|eot_id|>");
  for (int i = 0; kTestBase + i < kTestVocabulary; ++i) {
    add(kTestBase + i, fmt::format("<custom_token_{}>", i));
  }
  json.set("added_tokens", Json(std::move(added)));
  return tokenizer::Tokenizer::from_json(json.dump(), "test").value();
}

// The text of a code of the test's books in its slot.
inline std::string code_text(int code, int slot) {
  return fmt::format("<custom_token_{}>", 10 + kTestBookSize * slot + code);
}

// A frame all of whose codes are the same one.
inline std::string frame_text(int code) {
  std::string text;
  for (int slot = 0; slot < 7; ++slot) text += code_text(code, slot);
  return text;
}

}  // namespace pelton::speech
