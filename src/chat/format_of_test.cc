#include "chat/format_of.h"

#include <gmock/gmock.h>

#include "chat/tiny_chatml_tokenizer.h"
#include "chat/tiny_tokenizer.h"

namespace pelton::chat {
namespace {

struct Flags {
  std::string tool_call_parser;
  std::string reasoning_parser;
  bool is_template_given = false;
};

// "": taken; else the flag that is refused.
std::string refused(const tokenizer::Tokenizer& tokenizer, const Flags& flags) {
  const auto format = format_of({.tokenizer = tokenizer,
                                 .is_template_given = flags.is_template_given,
                                 .reasoning_parser = flags.reasoning_parser,
                                 .tool_call_parser = flags.tool_call_parser});
  if (format.ok()) return "";
  EXPECT_EQ(format.error().code, ErrorCode::kInvalidArgument) << format.error().message;
  EXPECT_THAT(format.error().message, testing::HasSubstr(format.error().field));
  return format.error().field;
}

TEST(FormatOf, HarmonyTakesItsOwnParsersNamesAndNoOthers) {
  const tokenizer::Tokenizer harmony = tiny_tokenizer();
  EXPECT_EQ(refused(harmony, {.tool_call_parser = "openai", .reasoning_parser = "openai_gptoss"}),
            "");
  EXPECT_EQ(refused(harmony, {.tool_call_parser = "gpt-oss", .reasoning_parser = "gpt-oss"}), "");
  EXPECT_EQ(refused(harmony, {.tool_call_parser = "hermes", .reasoning_parser = {}}),
            "--tool-call-parser");
  EXPECT_EQ(refused(harmony, {.tool_call_parser = {}, .reasoning_parser = "qwen3"}),
            "--reasoning-parser");
  EXPECT_EQ(
      refused(harmony, {.tool_call_parser = {}, .reasoning_parser = {}, .is_template_given = true}),
      "--chat-template");
}

TEST(FormatOf, ChatMlWithoutATemplateTakesWhatItReads) {
  const tokenizer::Tokenizer chatml = tiny_chatml_tokenizer();
  EXPECT_EQ(refused(chatml, {.tool_call_parser = "hermes", .reasoning_parser = "qwen3"}), "");
  EXPECT_EQ(refused(chatml, {.tool_call_parser = "mistral", .reasoning_parser = {}}),
            "--tool-call-parser");
  EXPECT_EQ(refused(chatml, {.tool_call_parser = "openai", .reasoning_parser = {}}),
            "--tool-call-parser");
  EXPECT_EQ(refused(chatml, {.tool_call_parser = {}, .reasoning_parser = "plain"}),
            "--reasoning-parser");
}

}  // namespace
}  // namespace pelton::chat
