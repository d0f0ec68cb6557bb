#include "speech/text_pieces.h"

#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "base/random.h"

namespace pelton::speech {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(TextPieces, AreCutWhereSentencesEnd) {
  EXPECT_THAT(text_pieces("One. Two? Three!", 9), ElementsAre("One.", "Two?", "Three!"));
  EXPECT_THAT(text_pieces("One. Two? Three!", 100), ElementsAre("One.", "Two? Three!"));
  EXPECT_THAT(text_pieces("He said \"No.\" She left.", 16),
              ElementsAre("He said \"No.\"", "She left."));
  EXPECT_THAT(text_pieces("Mr. Smith is in. He waits", 18),
              ElementsAre("Mr. Smith is in.", "He waits"));
  EXPECT_THAT(text_pieces("It costs 3.50 now. Buy", 19), ElementsAre("It costs 3.50 now.", "Buy"));
  EXPECT_THAT(text_pieces("At 5 p.m. on the 3. of May. Be there", 100),
              ElementsAre("At 5 p.m. on the 3. of May.", "Be there"));
  EXPECT_THAT(text_pieces("What?! No.", 100), ElementsAre("What?!", "No."));
  EXPECT_THAT(text_pieces("一二三。四五六。", 5), ElementsAre("一二三。", "四五六。"));
  EXPECT_THAT(text_pieces("「一二。」三四。", 100), ElementsAre("「一二。」", "三四。"));
  EXPECT_THAT(text_pieces("a line\nanother", 10), ElementsAre("a line", "another"));
  EXPECT_THAT(text_pieces("a line\n\"another\"", 100), ElementsAre("a line", "\"another\""));
}

// The first piece is one sentence, and those behind it are longer and longer.
TEST(TextPieces, GrowFromTheFirstSentenceOn) {
  const std::string sentence = "Thirty characters are in this.";
  ASSERT_EQ(sentence.size(), 30u);
  std::string text;
  for (int i = 0; i < 24; ++i) text += sentence + " ";
  std::vector<size_t> sentences;
  for (const std::string& piece : text_pieces(text, kPieceCharsMax)) {
    sentences.push_back((piece.size() + 1) / (sentence.size() + 1));
  }
  EXPECT_THAT(sentences, ElementsAre(1, 2, 4, 8, 8, 1));
}

// Two sentences that are too long together are two pieces.
TEST(TextPieces, AreNeverLongerThanIsAsked) {
  const std::string first(150, 'a');
  const std::string second(100, 'b');
  const std::string third(200, 'c');
  EXPECT_THAT(text_pieces("Yes. " + first + ". " + second + ". " + third + ".", 250),
              ElementsAre("Yes.", first + ".", second + ".", third + "."));
}

TEST(TextPieces, WithoutSentencesAtClausesThenBlanksThenAnywhere) {
  EXPECT_THAT(text_pieces("first part, second part", 15),
              ElementsAre("first part,", "second part"));
  EXPECT_THAT(text_pieces("about 10,000 more", 11), ElementsAre("about", "10,000 more"));
  EXPECT_THAT(text_pieces("abcdefgh", 3), ElementsAre("abc", "def", "gh"));
  EXPECT_THAT(text_pieces("äöüß", 3), ElementsAre("äöü", "ß"));
  EXPECT_THAT(text_pieces(" \n ", 3), IsEmpty());
  EXPECT_THAT(text_pieces("", 3), IsEmpty());
}

// Whatever the text: no piece is too long, and but for blanks none of it is lost.
TEST(TextPieces, LoseNothing) {
  const std::string_view letters[] = {"a", " ", ".", ",", "é", "。", "\n", "\"", "7", "😀"};
  for (uint64_t run = 0; run < 300; ++run) {
    std::string text;
    const uint64_t size = base::random_bits(run, 0) % 80;
    for (uint64_t i = 1; i <= size; ++i) text += letters[base::random_bits(run, i) % 10];
    const size_t most = 1 + base::random_bits(run, 99) % 12;
    std::string joined;
    for (const std::string& piece : text_pieces(text, most)) {
      size_t chars = 0;
      for (const char c : piece) chars += (c & 0xc0) != 0x80;
      EXPECT_LE(chars, most) << text;
      EXPECT_FALSE(piece.empty());
      joined += piece;
    }
    const auto solid = [](const std::string& from) {
      std::string kept;
      for (const char c : from) {
        if (c != ' ' && c != '\n') kept += c;
      }
      return kept;
    };
    EXPECT_EQ(solid(joined), solid(text));
  }
}

TEST(TextCutter, SaysAPieceAsSoonAsItIsKnown) {
  TextCutter cutter;
  EXPECT_EQ(cutter.next(), std::nullopt);
  cutter.push("  Hello th");
  EXPECT_EQ(cutter.next(), std::nullopt);
  EXPECT_EQ(cutter.chars_waiting(), 8u);
  cutter.push("ere.");
  EXPECT_EQ(cutter.next(), std::nullopt) << "it may be the stop of a number or an address";
  cutter.push(" ");
  EXPECT_EQ(cutter.next(), "Hello there.");
  EXPECT_EQ(cutter.next(), std::nullopt);
  EXPECT_TRUE(cutter.is_empty());
  cutter.push("A short one. ");
  EXPECT_EQ(cutter.next(), std::nullopt) << "the second piece is to be longer";
  cutter.push("And another that makes it long enough to be said. Rest");
  EXPECT_EQ(cutter.next(), "A short one. And another that makes it long enough to be said.");
  cutter.finish();
  EXPECT_EQ(cutter.next(), "Rest");
  EXPECT_EQ(cutter.next(), std::nullopt);
  TextCutter lines;
  lines.push("A title \n");
  EXPECT_EQ(lines.next(), "A title");
}

// However a text comes, its pieces are those of the whole.
TEST(TextCutter, CutsAsTheWholeTextIsCut) {
  const std::string_view letters[] = {"a",  "b.", " ", ".", ",",  "é",  "。",
                                      "\n", "\"", "7", "?", "」", " x", "😀"};
  for (uint64_t run = 0; run < 1000; ++run) {
    std::vector<std::string> bits;
    const uint64_t count = base::random_bits(run, 0) % 120;
    for (uint64_t i = 1; i <= count; ++i) {
      bits.emplace_back(letters[base::random_bits(run, i) % std::size(letters)]);
    }
    std::string text;
    for (const std::string& bit : bits) text += bit;
    const size_t most = run % 3 == 0 ? kPieceCharsMax : 1 + base::random_bits(run, 500) % 90;
    TextCutter cutter(most);
    std::vector<std::string> pieces;
    const auto take = [&] {
      while (auto piece = cutter.next()) pieces.push_back(*std::move(piece));
    };
    for (const std::string& bit : bits) {
      cutter.push(bit);
      if (base::random_bits(run, 1000 + pieces.size()) % 4 != 0) take();
    }
    cutter.finish();
    take();
    EXPECT_EQ(pieces, text_pieces(text, most)) << "run " << run << ": " << text;
    EXPECT_TRUE(cutter.is_empty());
  }
}

}  // namespace
}  // namespace pelton::speech
