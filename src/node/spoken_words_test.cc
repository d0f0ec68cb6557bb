#include "node/spoken_words.h"

#include <string>

#include <gtest/gtest.h>

#include "base/json.h"

namespace pelton::node {
namespace {

// Single bytes, whose ids they are, and two tokens more: a blank with a mark behind it.
constexpr TokenId kBlankQuote = 256;
constexpr TokenId kBlankBracket = 257;
tokenizer::Tokenizer bytes_tokenizer() {
  Json vocabulary{Json::Object{}};
  int extra = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_plain = (byte >= 33 && byte < 127) || (byte >= 161 && byte < 173) || byte >= 174;
    const int point = is_plain ? byte : 256 + extra++;
    std::string letter;
    if (point < 128) {
      letter = static_cast<char>(point);
    } else {
      letter = {static_cast<char>(0xC0 | (point >> 6)), static_cast<char>(0x80 | (point & 0x3F))};
    }
    vocabulary.set(letter, byte);
  }
  vocabulary.set("\u0120\"", kBlankQuote).set("\u0120(", kBlankBracket);
  Json model{Json::Object{}};
  model.set("type", "BPE").set("vocab", std::move(vocabulary)).set("merges", Json{Json::Array{}});
  Json split{Json::Object{}};
  split.set("type", "ByteLevel").set("add_prefix_space", false).set("use_regex", true);
  Json decoder{Json::Object{}};
  decoder.set("type", "ByteLevel");
  Json all{Json::Object{}};
  all.set("version", "1.0").set("model", std::move(model)).set("pre_tokenizer", std::move(split));
  all.set("decoder", std::move(decoder)).set("added_tokens", Json{Json::Array{}});
  auto made = tokenizer::Tokenizer::from_json(all.dump(), "bytes");
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return *std::move(made);
}

std::vector<speech::Word> heard_words(const std::string& text, std::string_view language) {
  static const tokenizer::Tokenizer tokenizer = bytes_tokenizer();
  std::vector<TokenId> tokens;
  std::vector<models::AlignedToken> aligned;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto at = static_cast<double>(tokens.size());
    const std::string_view two = std::string_view(text).substr(i, 2);
    TokenId token = static_cast<unsigned char>(text[i]);
    if (two == " \"") token = kBlankQuote;
    if (two == " (") token = kBlankBracket;
    if (token >= 256) ++i;
    tokens.push_back(token);
    aligned.push_back({.begin_s = at, .end_s = at + 1.0, .probability = at / 10.0});
  }
  return spoken_words(tokens, aligned, tokenizer, language);
}

std::vector<std::string> texts_of(const std::string& text, std::string_view language) {
  std::vector<std::string> texts;
  for (const speech::Word& word : heard_words(text, language)) texts.push_back(word.text);
  return texts;
}

using Texts = std::vector<std::string>;

TEST(SpokenWords, BeginAtBlanks) {
  const std::vector<speech::Word> words = heard_words(" Good day", "en");
  ASSERT_EQ(words.size(), 2u);
  EXPECT_EQ(words[0].text, " Good");
  EXPECT_EQ(words[0].begin_s, 0.0);
  EXPECT_EQ(words[0].end_s, 5.0);
  EXPECT_EQ(words[1].begin_s, 5.0);
  EXPECT_EQ(words[1].end_s, 9.0);
  EXPECT_NEAR(words[1].probability, 0.65, 1e-9);  // of tokens 5 to 8
}

TEST(SpokenWords, PunctuationIsBesideItsWord) {
  EXPECT_EQ(texts_of(" \"Yes\", he said.", "en"), (Texts{" \"Yes\",", " he", " said."}));
  EXPECT_EQ(texts_of(" (a) b", "en"), (Texts{" (a)", " b"}));
  const std::vector<speech::Word> words = heard_words(" So.", "en");
  ASSERT_EQ(words.size(), 1u);
  EXPECT_EQ(words[0].end_s, 3.0);  // the word's, without the stop
}

TEST(SpokenWords, CharactersAreNeverCut) {
  EXPECT_EQ(texts_of(" größer", "de"), (Texts{" größer"}));
  EXPECT_EQ(texts_of("日本", "ja"), (Texts{"日", "本"}));
  EXPECT_EQ(texts_of("日本", "de"), (Texts{"日本"}));
  EXPECT_EQ(texts_of("a\xE6\x97", "ja").size(), 2u);  // half a character at the end
  EXPECT_TRUE(texts_of("", "en").empty());
}

}  // namespace
}  // namespace pelton::node
