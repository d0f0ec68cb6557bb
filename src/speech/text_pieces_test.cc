#include "speech/text_pieces.h"

#include <string>

#include <gmock/gmock.h>

#include "base/random.h"

namespace pelton::speech {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(TextPieces, AreCutWhereSentencesEnd) {
  EXPECT_THAT(text_pieces("One. Two? Three!", 9), ElementsAre("One. Two?", "Three!"));
  EXPECT_THAT(text_pieces("One. Two? Three!", 100), ElementsAre("One. Two? Three!"));
  EXPECT_THAT(text_pieces("He said \"No.\" She left.", 16),
              ElementsAre("He said \"No.\"", "She left."));
  EXPECT_THAT(text_pieces("Mr. Smith is in. He waits", 18),
              ElementsAre("Mr. Smith is in.", "He waits"));
  EXPECT_THAT(text_pieces("It costs 3.50 now. Buy", 19), ElementsAre("It costs 3.50 now.", "Buy"));
  EXPECT_THAT(text_pieces("一二三。四五六。", 5), ElementsAre("一二三。", "四五六。"));
  EXPECT_THAT(text_pieces("a line\nanother", 10), ElementsAre("a line", "another"));
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

}  // namespace
}  // namespace pelton::speech
