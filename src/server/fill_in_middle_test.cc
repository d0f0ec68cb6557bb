#include "server/fill_in_middle.h"

#include <string>

#include <gmock/gmock.h>

#include "chat/tiny_tokenizer.h"
#include "server/server_fixture.h"
#include "tokenizer/tokenizer_json_writer.h"

namespace pelton::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;

// Every byte, then these.
tokenizer::Tokenizer with_tokens(const std::vector<std::string>& added) {
  tokenizer::TokenizerFile file{.split_pattern = "."};
  for (int byte = 0; byte < 256; ++byte) file.tokens.emplace_back(1, static_cast<char>(byte));
  for (const std::string& text : added) {
    file.added.push_back(
        {.id = static_cast<TokenId>(256 + file.added.size()), .text = text, .special = true});
  }
  return tokenizer::Tokenizer::from_json(tokenizer::write_tokenizer_json(file), "fim").value();
}

constexpr TokenId kFirst = 256;

TEST(FillInMiddle, TheVocabularySaysInWhichOrder) {
  const std::vector<TokenId> before = {'a', 'b'};
  const auto qwen = fill_in_middle(
      with_tokens({"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|file_sep|>"}), before,
      {'z'});
  ASSERT_TRUE(qwen.ok());
  EXPECT_THAT(qwen->prompt, ElementsAre(kFirst, 'a', 'b', kFirst + 2, 'z', kFirst + 1));
  EXPECT_THAT(qwen->stops, IsSupersetOf({kFirst, kFirst + 1, kFirst + 2, kFirst + 3}));
  const auto codestral = fill_in_middle(with_tokens({"[PREFIX]", "[SUFFIX]"}), before, {'z'});
  ASSERT_TRUE(codestral.ok());
  EXPECT_THAT(codestral->prompt, ElementsAre(kFirst + 1, 'z', kFirst, 'a', 'b'));
  const auto deepseek =
      fill_in_middle(with_tokens({"<\uFF5Cfim\u2581begin\uFF5C>", "<\uFF5Cfim\u2581hole\uFF5C>",
                                  "<\uFF5Cfim\u2581end\uFF5C>"}),
                     before, {'z'});
  ASSERT_TRUE(deepseek.ok());
  EXPECT_THAT(deepseek->prompt, ElementsAre(kFirst, 'a', 'b', kFirst + 1, 'z', kFirst + 2));
}

TEST(FillInMiddle, TextIsNeverAMarker) {
  const tokenizer::Tokenizer tokenizer =
      with_tokens({"<fim_prefix>", "<fim_middle>", "<fim_suffix>"});
  const auto made = fill_in_middle(tokenizer, {'a'}, tokenizer.encode("<fim_middle>"));
  ASSERT_TRUE(made.ok());
  EXPECT_THAT(made->prompt, ElementsAre(kFirst, 'a', kFirst + 2, '<', 'f', 'i', 'm', '_', 'm', 'i',
                                        'd', 'd', 'l', 'e', '>', kFirst + 1));
}

TEST(FillInMiddle, AModelWithoutMarkersRefusesTheSuffix) {
  const auto none = fill_in_middle(with_tokens({"<fim_prefix>"}), {'a'}, {'z'});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().field, "suffix");
  ServerFixture fixture(R"({"rules":[{"when":"","then":"x"}]})", {});
  const net::HttpResponse refused =
      fixture.post("/v1/completions", R"({"prompt":"a","suffix":"z"})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("'suffix'"));
  EXPECT_EQ(fixture.post("/v1/completions", R"({"prompt":"a","suffix":""})").status, 200);
}

}  // namespace
}  // namespace pelton::server
