#include "tokenizer/tokenizer_json_writer.h"

#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "tokenizer/tokenizer.h"

namespace pelton::tokenizer {
namespace {

Tokenizer synthetic_for(std::string_view model_type, int vocab_size) {
  return Tokenizer::from_json(synthetic_tokenizer_for(model_type, vocab_size).value().json,
                              "synthetic")
      .value();
}

TEST(SyntheticTokenizer, OfAQwenModelIsSmallAndHasItsControlTokens) {
  const std::string file = synthetic_tokenizer_for("qwen3", 151'936).value().json;
  EXPECT_LT(file.size(), 64u << 10);
  const Tokenizer tokenizer = synthetic_for("qwen3", 151'936);
  EXPECT_EQ(tokenizer.vocab_size(), kSyntheticTokensMax);
  for (const char* const text :
       {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>",
        "<tool_response>", "</tool_response>", "<think>", "</think>"}) {
    EXPECT_EQ(tokenizer.encode_with_special(text).size(), 1u) << text;
  }
  EXPECT_EQ(synthetic_for("qwen3", 300).vocab_size(), 300) << "never more than the model has";
}

TEST(SyntheticTokenizer, EachFamilyHasItsOwnControlTokens) {
  for (const auto& [type, bos, eos, others] :
       {std::tuple("llama", "<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>"),
        std::tuple("mistral", "<s>", "</s>", "[TOOL_CALLS]"),
        std::tuple("mixtral", "<s>", "</s>", "[INST]"),
        std::tuple("of_tomorrow", "<s>", "</s>", "</s>"),
        std::tuple("gemma3_text", "<bos>", "<end_of_turn>", "<start_of_turn>"),
        std::tuple("deepseek_v3", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>",
                   "<｜tool▁sep｜>"),
        std::tuple("kimi_k2", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>")}) {
    const SyntheticTokenizer made = synthetic_tokenizer_for(type, 131'072).value();
    EXPECT_EQ(made.bos_token, bos);
    EXPECT_EQ(made.eos_token, eos);
    const Tokenizer tokenizer = Tokenizer::from_json(made.json, type).value();
    EXPECT_EQ(tokenizer.vocab_size(), kSyntheticTokensMax);
    for (const char* const text : {bos, eos, others}) {
      const auto id = tokenizer.special_id(text);
      ASSERT_TRUE(id.has_value()) << type << ' ' << text;
      EXPECT_TRUE(tokenizer.is_special(*id)) << text;
    }
    EXPECT_FALSE(tokenizer.special_id("<|channel|>").has_value()) << type;
  }
}

TEST(SyntheticTokenizer, AnyTextEncodesAndDecodes) {
  for (const char* const type :
       {"qwen3", "gpt_oss", "llama", "mistral", "gemma3_text", "deepseek_v3"}) {
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
