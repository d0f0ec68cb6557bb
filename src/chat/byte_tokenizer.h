// For tests of dialects: all of them with their markers, and a vocabulary whose tokens are bytes,
// so that a stream is cut wherever it can be.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json_writer.h"

namespace pelton::chat {

inline constexpr std::string_view kMarkers[] = {"<think>",
                                                "</think>",
                                                "<tool_call>",
                                                "</tool_call>",
                                                "[THINK]",
                                                "[/THINK]",
                                                "<｜tool▁calls▁begin｜>",
                                                "<｜tool▁calls▁end｜>",
                                                "[ARGS]",
                                                "[TOOL_CALLS]",
                                                "<｜tool▁call▁begin｜>",
                                                "<｜tool▁call▁end｜>",
                                                "[CALL_ID]",
                                                "<|tool_call|>",
                                                "<｜tool▁sep｜>",
                                                "<|python_tag|>",
                                                "<|/tool_call|>"};
inline constexpr std::string_view kDialects[] = {"hermes",       "deepseek_r1", "deepseek_v31",
                                                 "llama3_json",  "pythonic",    "mistral",
                                                 "mistral_args", "qwen3_coder", "phi4_mini"};
inline constexpr std::string_view kEnd = "<end>";

// A token for each byte, one that ends a turn, and one for each of `markers`.
inline tokenizer::Tokenizer byte_tokenizer(std::span<const std::string_view> markers) {
  tokenizer::TokenizerFile file{.split_pattern = "[^\\n]+|\\n+"};
  for (int byte = 0; byte < 256; ++byte) file.tokens.emplace_back(1, static_cast<char>(byte));
  TokenId next = 256;
  file.added.push_back({next++, std::string(kEnd), true});
  for (const std::string_view marker : markers) {
    file.added.push_back({next++, std::string(marker), true});
  }
  return tokenizer::Tokenizer::from_json(write_tokenizer_json(file), "bytes").value();
}
// A text as two tokens, cut at byte `cut`: what stands before it and behind it comes at once.
struct CutText {
  tokenizer::Tokenizer tokenizer;
  std::vector<TokenId> tokens;
};
inline CutText cut_text(const std::string& text, size_t cut) {
  tokenizer::TokenizerFile file{.split_pattern = "[^\\n]+|\\n+"};
  for (int byte = 0; byte < 256; ++byte) file.tokens.emplace_back(1, static_cast<char>(byte));
  file.added.push_back({256, std::string(kEnd), true});
  file.tokens.emplace_back("");
  std::vector<TokenId> tokens;
  for (const std::string& part : {text.substr(0, cut), text.substr(cut)}) {
    if (part.empty()) continue;
    tokens.push_back(part.size() == 1 ? static_cast<uint8_t>(part[0])
                                      : static_cast<TokenId>(file.tokens.size()));
    if (part.size() > 1) file.tokens.push_back(part);
  }
  return {tokenizer::Tokenizer::from_json(write_tokenizer_json(file), "two tokens").value(),
          std::move(tokens)};
}

inline tokenizer::Tokenizer byte_tokenizer(bool with_markers) {
  std::span<const std::string_view> markers;
  if (with_markers) markers = kMarkers;
  return byte_tokenizer(markers);
}

}  // namespace pelton::chat
