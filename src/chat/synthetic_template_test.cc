#include "chat/synthetic_template.h"

#include <gtest/gtest.h>

#include "chat/format_of.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json_writer.h"

namespace pelton::chat {
namespace {

// What `pelton synth` writes of a family that nobody has written control tokens for chats, and not
// in Harmony.
TEST(SyntheticTemplate, AFamilyThatIsNotKnownHasAPlainOne) {
  const auto made = tokenizer::synthetic_tokenizer_for("of_tomorrow", 512).value();
  const auto tokenizer = tokenizer::Tokenizer::from_json(made.json, "synthetic").value();
  const TemplateSource source{.from = "here",
                              .text = std::string(synthetic_template("of_tomorrow")),
                              .for_tools = {},
                              .bos_token = made.bos_token,
                              .eos_token = made.eos_token};
  const auto format = format_of({.tokenizer = tokenizer, .chat_template = source});
  ASSERT_TRUE(format.ok()) << format.error().message;
  EXPECT_NE(*format, nullptr);
  EXPECT_EQ(synthetic_template("gpt_oss"), "");
  EXPECT_EQ(synthetic_template("qwen3_moe"), "");
}

}  // namespace
}  // namespace pelton::chat
