#include "tokenizer/tokenizer_json_writer.h"

#include <string>

#include <gtest/gtest.h>

#include "tokenizer/tokenizer.h"

namespace pelton::tokenizer {
namespace {

Tokenizer synthetic_for(std::string_view model_type, int vocab_size) {
  return Tokenizer::from_json(synthetic_tokenizer_for(model_type, vocab_size).value(), "synthetic")
      .value();
}

TEST(SyntheticTokenizer, OfAQwenModelIsSmallAndHasItsControlTokens) {
  const std::string file = synthetic_tokenizer_for("qwen3", 151'936).value();
  EXPECT_LT(file.size(), 64u << 10);
  const Tokenizer tokenizer = synthetic_for("qwen3", 151'936);
  EXPECT_EQ(tokenizer.vocab_size(), kSyntheticChatmlVocabulary);
  for (const char* const text :
       {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>",
        "<tool_response>", "</tool_response>", "<think>", "</think>"}) {
    EXPECT_EQ(tokenizer.encode_with_special(text).size(), 1u) << text;
  }
  EXPECT_EQ(synthetic_for("qwen3", 300).vocab_size(), 300) << "never more than the model has";
}

TEST(SyntheticTokenizer, AnyTextEncodesAndDecodes) {
  for (const char* const type : {"qwen3", "gpt_oss"}) {
    const Tokenizer tokenizer = synthetic_for(type, 2000);
    for (const std::string text :
         {"The wheel turns.", "Zürich \u6c34 \xf0\x9f\x9a\xb0\n", "", "a"}) {
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << type;
    }
  }
  const Tokenizer small = synthetic_for("qwen3", 151'936);
  EXPECT_LT(small.encode("wheel").size(), 5u) << "letters come in runs";
}

}  // namespace
}  // namespace pelton::tokenizer
