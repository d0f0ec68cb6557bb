// For tests: of which shape the model of ServerFixture is. PELTON_TEST_SHAPE=qwen3 gives it Qwen3's
// vocabulary, and it says what a test's script has it say in Harmony in ChatML's and Qwen3's
// spelling: so the tests of the protocols run over either, and what they expect of an answer is the
// same.
#pragma once

#include <cstdlib>
#include <regex>
#include <string>
#include <string_view>

#include "chat/tiny_chatml_tokenizer.h"
#include "chat/tiny_tokenizer.h"

namespace pelton::server {

inline bool is_qwen3_shape() {
  const char* shape = std::getenv("PELTON_TEST_SHAPE");
  return shape != nullptr && std::string_view(shape) == "qwen3";
}

inline tokenizer::Tokenizer tokenizer_of_shape() {
  return is_qwen3_shape() ? chat::tiny_chatml_tokenizer() : chat::tiny_tokenizer();
}

// A script (a JSON text) whose answers are Harmony's. For example
//   <|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi.<|return|>
// becomes <think>\nHm.\n</think>\n\nHi.<|im_end|>.
inline std::string in_qwen3_spelling(std::string_view script) {
  std::string text(script);
  const auto replace = [&](const char* pattern, const char* with) {
    text = std::regex_replace(text, std::regex(pattern), with);
  };
  replace(R"(<\|start\|>assistant)", "");
  replace(R"(<\|channel\|>analysis<\|message\|>([^<]*)<\|end\|>)", R"(<think>\n$1\n</think>\n\n)");
  replace(R"(<\|channel\|>analysis<\|message\|>)", R"(<think>\n)");
  replace(R"(<\|channel\|>commentary<\|message\|>([^<]*)<\|end\|>)", "$1");
  replace(
      R"(<\|channel\|>commentary to=functions\.(\w+) (?:<\|constrain\|>)?json<\|message\|>([^<]*)<\|(end|call)\|>)",
      R"(<tool_call>\n{\"name\": \"$1\", \"arguments\": $2}\n</tool_call><|$3|>)");
  replace(R"(</tool_call><\|end\|>)", R"(</tool_call>\n)");
  replace(R"(<\|channel\|>final<\|message\|>)", "");
  replace(R"(<\|(return|call)\|>)", "<|im_end|>");
  return text;
}

}  // namespace pelton::server
