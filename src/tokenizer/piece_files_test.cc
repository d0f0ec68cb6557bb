// Tokenizers in files of other kinds: SentencePiece's tokenizer.model, tekken.json, Unigram and
// WordPiece in a tokenizer.json. The files are the fuzzers' seeds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/normal_form.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json_writer.h"
#include "tokenizer/word_pieces.h"

namespace pelton::tokenizer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string seed(const std::string& name) {
  return base::read_file(PELTON_SOURCE_DIR "/src/tokenizer/testdata/" + name, 1 << 20).value();
}
TokenId byte(uint8_t value) {
  return 3 + value;
}

// <unk> <s> </s>, 256 bytes, ▁ h i ▁h(-2) hi(-1) ▁hi(-3), "word" by its user.
TEST(SentencePieceFile, PairsWithTheBestScoreAreJoinedFirst) {
  const auto tokenizer =
      Tokenizer::from_sentencepiece(seed("sentencepiece_fuzz/bpe"), "tokenizer.model").value();
  constexpr TokenId kMark = 259, kH = 260, kI = 261, kMarkH = 262, kHi = 263, kMarkHi = 264;
  EXPECT_THAT(tokenizer.encode("hi"), ElementsAre(kMarkHi)) << "hi first, then ▁hi";
  EXPECT_THAT(tokenizer.encode("h  hi"), ElementsAre(kMarkH, kMark, kMarkHi));
  EXPECT_THAT(tokenizer.encode("ii"), ElementsAre(kMark, kI, kI));
  EXPECT_THAT(tokenizer.encode("xhi"), ElementsAre(kMark, byte('x'), kHi));
  EXPECT_THAT(tokenizer.encode("hwordh"), ElementsAre(kMarkH, 265, kH)) << "stands as one";
  EXPECT_THAT(tokenizer.encode("<s>").size(), 4u) << "a control token's text is text";
  EXPECT_THAT(tokenizer.encode_with_special("<s>hi"), ElementsAre(1, kMarkHi));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("hi ö\n")), " hi ö\n");
}

// <unk> ▁(-2) a(-1) b(-1) ab(-1.5) ▁a(-4); the charsmap makes "A" an "a".
TEST(SentencePieceFile, UnigramTakesTheLikeliestPieces) {
  for (const bool json : {false, true}) {
    const std::string file =
        seed(json ? "tokenizer_json_fuzz/unigram.json" : "sentencepiece_fuzz/unigram");
    const auto tokenizer = json ? Tokenizer::from_json(file, "tokenizer.json").value()
                                : Tokenizer::from_sentencepiece(file, "tokenizer.model").value();
    const int mark = json ? 2 : 1;  // ids behind it count on
    const auto ids = [&](std::initializer_list<int> at) {
      std::vector<TokenId> out;
      for (const int i : at) out.push_back(i < 0 ? (json ? 1 : 0) : mark + i);
      return out;
    };
    EXPECT_EQ(tokenizer.encode("ab"), ids({0, 3})) << "▁ ab is -3.5, ▁a b is -5";
    EXPECT_EQ(tokenizer.encode(" AB  xyz  "), ids({0, 1, -1, 0, -1}))
        << "spaces go, B is unknown, and so is a run";
    EXPECT_EQ(tokenizer.encode(""), ids({}));
  }
}

TEST(Charsmap, PlacesOutsideOfItAreNone) {
  const std::string file = seed("sentencepiece_fuzz/unigram");
  const size_t at = file.find(std::string("\x00\x04\x00\x00", 4));
  ASSERT_NE(at, std::string::npos);
  const std::string blob = file.substr(at, 4 + 1024 + 2);
  const Charsmap map = Charsmap::parse(blob).value();
  ASSERT_TRUE(map.match("ABC").has_value());
  EXPECT_EQ(map.match("ABC")->with, "a");
  EXPECT_EQ(map.match("ABC")->length, 1u);
  EXPECT_FALSE(map.match("B").has_value());
  EXPECT_FALSE(map.match("\xFF").has_value());
  EXPECT_FALSE(map.match("").has_value());
  EXPECT_FALSE(Charsmap::parse(blob.substr(0, 100)).ok());
  EXPECT_FALSE(Charsmap::parse("ab").ok());
  std::string cut = blob;
  cut.resize(cut.size() - 2);  // no values
  EXPECT_FALSE(Charsmap::parse(cut).value().match("A").has_value());
}

TEST(SentencePieceFile, BrokenOnesAreRefusedByPlace) {
  for (const std::string& file :
       {seed("sentencepiece_fuzz/cut"), std::string("\x0a\xff"), std::string("\x0b"), std::string(),
        seed("sentencepiece_fuzz/bpe").substr(0, 40)}) {
    const auto made = Tokenizer::from_sentencepiece(file, "tokenizer.model");
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, ErrorCode::kBadCheckpoint);
    EXPECT_THAT(made.error().message, HasSubstr("tokenizer.model: "));
  }
}

TEST(TekkenFile, RanksStandBehindControlTokens) {
  const auto tokenizer = Tokenizer::from_tekken(seed("tekken_fuzz/small"), "tekken.json").value();
  EXPECT_EQ(tokenizer.vocab_size(), 279) << "no more than the model has";
  EXPECT_EQ(tokenizer.special_id("<s>"), 1);
  EXPECT_EQ(tokenizer.special_id("[INST]"), 3);
  EXPECT_EQ(tokenizer.special_id("<SPECIAL_19>"), 19);
  EXPECT_THAT(tokenizer.encode("hello"), ElementsAre(20 + 256, 20 + 258));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("Zürich [INST]")), "Zürich [INST]");
  const auto bad = Tokenizer::from_tekken(seed("tekken_fuzz/hole"), "tekken.json");
  EXPECT_THAT(bad.error().message, HasSubstr("vocab[0].rank"));
}

TEST(TekkenFile, NoRankOfAControlTokenStandsTwice) {
  std::string file = seed("tekken_fuzz/small");
  const std::string third = R"({"rank":3,"token_str":"[INST]"})";
  file.replace(file.find(third), third.size(), R"({"rank":1,"token_str":"[INST]"})");
  const auto bad = Tokenizer::from_tekken(file, "tekken.json");
  ASSERT_FALSE(bad.ok());
  EXPECT_THAT(bad.error().message, HasSubstr("special_tokens[2].rank"));
}

// [UNK] [CLS] play ##ing , de ##ja 木
TEST(WordPiece, WordsAreWrittenGreedily) {
  const auto tokenizer =
      Tokenizer::from_json(seed("tokenizer_json_fuzz/wordpiece.json"), "tokenizer.json").value();
  EXPECT_THAT(tokenizer.encode("Playing, DÉJÀ"), ElementsAre(2, 3, 4, 5, 6));
  EXPECT_THAT(tokenizer.encode("play木木\tplay"), ElementsAre(2, 7, 7, 2));
  EXPECT_THAT(tokenizer.encode("played ing"), ElementsAre(0, 0));
  EXPECT_THAT(tokenizer.encode("pl\u200Day,,"), ElementsAre(2, 4, 4)) << "format characters go";
  EXPECT_THAT(tokenizer.encode(std::string(101, 'x')), ElementsAre(0));
  EXPECT_THAT(tokenizer.encode_with_special("[CLS]play"), ElementsAre(1, 2));
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{2, 3, 4}), " playing ,");
}

TEST(NormalForms, AccentsAndCase) {
  EXPECT_EQ(without_accents("déjà Ångström ﬁ 한"), "deja Angstrom ﬁ \u1112\u1161\u11ab");
  EXPECT_EQ(without_accents("का"), "का") << "marks that take place stay";
  EXPECT_EQ(lower_case("ÀÉ ΑΣ ЖЯ ẞ Ⅷ 𐐀 x"), "àé ασ жя ß ⅷ 𐐨 x");
  EXPECT_EQ(lower_case("İ"), "i\u0307");
}

// Phi-3's are so.
TEST(AddedTokens, TakeTheWhiteSpaceBesideThem) {
  std::string file = R"({"added_tokens":[)"
                     R"({"id":256,"content":"<a>","special":true,"rstrip":true},)"
                     R"({"id":257,"content":"<b>","special":true,"lstrip":true},)"
                     R"({"id":258,"content":"é!","special":false,"normalized":true},)"
                     R"({"id":259,"content":"<c>","special":false,"normalized":true},)"
                     R"({"id":260,"content":"<d>","special":true,"normalized":false}],)"
                     R"("normalizer":{"type":"NFC"},)";
  TokenizerFile bytes{.split_pattern = "."};
  for (int i = 0; i < 256; ++i) bytes.tokens.emplace_back(1, static_cast<char>(i));
  const std::string plain = write_tokenizer_json(bytes);
  file += plain.substr(plain.find("\"pre_tokenizer\""));
  const auto tokenizer = Tokenizer::from_json(file, "tokenizer.json").value();
  EXPECT_THAT(tokenizer.encode_with_special("x <a> \n y <b> z"),
              ElementsAre('x', ' ', 256, 'y', 257, ' ', 'z'));
  EXPECT_THAT(tokenizer.encode_with_special("e\u0301!"), ElementsAre(258));
  EXPECT_THAT(tokenizer.encode_with_special("<a>é!x"), ElementsAre(256, 258, 'x'));
  // A slash over ">" makes it another character (U+226F) in form C, where <c> is looked for.
  EXPECT_THAT(tokenizer.encode_with_special("<c>x"), ElementsAre(259, 'x'));
  EXPECT_THAT(tokenizer.encode_with_special("<c>\u0338"), ElementsAre('<', 'c', 0xE2, 0x89, 0xAF));
  EXPECT_THAT(tokenizer.encode_with_special("<d>\u0338"), ElementsAre(260, 0xCC, 0xB8));
}

}  // namespace
}  // namespace pelton::tokenizer
