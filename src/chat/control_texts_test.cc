#include "chat/control_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokenizer/tokenizer_json_writer.h"

namespace pelton::chat {
namespace {

using testing::ElementsAre;

// A token for each byte; <a> with the white space behind it, <b> with that before it, <c>.
tokenizer::Tokenizer stripping_tokenizer() {
  tokenizer::TokenizerFile bytes{.split_pattern = "."};
  for (int i = 0; i < 256; ++i) bytes.tokens.emplace_back(1, static_cast<char>(i));
  const std::string plain = tokenizer::write_tokenizer_json(bytes);
  const std::string file = R"({"added_tokens":[)"
                           R"({"id":256,"content":"<a>","special":true,"rstrip":true},)"
                           R"({"id":257,"content":"<b>","special":true,"lstrip":true},)"
                           R"({"id":258,"content":"<c>","special":true}],)" +
                           plain.substr(plain.find("\"pre_tokenizer\""));
  return tokenizer::Tokenizer::from_json(file, "tokenizer.json").value();
}

class StrippedTexts : public testing::Test {
 protected:
  std::vector<TokenId> encoded(const jinja::Text& text) const {
    std::vector<TokenId> tokens;
    texts_.encode(text, tokens);
    return tokens;
  }

  const tokenizer::Tokenizer tokenizer_ = stripping_tokenizer();
  const ControlTexts texts_{tokenizer_};
};

TEST_F(StrippedTexts, AControlTokenTakesItsWhiteSpaceWithIt) {
  EXPECT_THAT(encoded(jinja::Text("x <a> \n\u3000y\u00A0 <b> z <c> ")),
              ElementsAre('x', ' ', 256, 'y', 257, ' ', 'z', ' ', 258, ' '));
  EXPECT_THAT(encoded(jinja::Text("<a>\n<b>\n<a> ")), ElementsAre(256, 257, '\n', 256));
}

// As the published tokenizer does with a prompt as a whole.
TEST_F(StrippedTexts, AlsoFromTheUsersText) {
  jinja::Text text("<a>\n");
  text.append(jinja::Text::from_input(" hi <a> "));
  text.append("<b>");
  EXPECT_THAT(encoded(text), ElementsAre(256, 'h', 'i', ' ', '<', 'a', '>', 257))
      << "which becomes no control token";
}

}  // namespace
}  // namespace pelton::chat
