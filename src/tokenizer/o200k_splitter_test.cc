// The scanner against PCRE2 running the pattern itself.
#include "tokenizer/o200k_splitter.h"

#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/utf8.h"
#include "tokenizer/regex_splitter.h"

namespace pelton::tokenizer {
namespace {

using testing::ElementsAre;

std::vector<std::string> pieces(const Splitter& splitter, std::string_view text) {
  std::vector<std::string> out;
  splitter.split(text, [&](std::string_view piece) { out.emplace_back(piece); });
  return out;
}

std::vector<std::string> scanned(std::string_view text) {
  return pieces(O200kSplitter(), text);
}

const RegexSplitter& by_pattern() {
  static const std::unique_ptr<RegexSplitter> splitter =
      RegexSplitter::compile({std::string(kO200kPattern)}).value();
  return *splitter;
}

TEST(O200kSplitter, CutsAsTheReferenceSays) {
  EXPECT_THAT(scanned("HTTPServer"), ElementsAre("HTTPServer"));
  EXPECT_THAT(scanned("fooBar"), ElementsAre("foo", "Bar"));
  EXPECT_THAT(scanned("FOOBarX"), ElementsAre("FOOBar", "X"));
  EXPECT_THAT(scanned("x/y//\nz"), ElementsAre("x", "/y", "//\n", "z"));
  EXPECT_THAT(scanned("a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(scanned(" \n \n  x "), ElementsAre(" \n \n", " ", " x", " "));
  EXPECT_THAT(scanned("12345"), ElementsAre("123", "45"));
  EXPECT_THAT(scanned("I'LL it's ca't'"), ElementsAre("I'LL", " it's", " ca't", "'"));
  EXPECT_THAT(scanned("\xCC\x80"
                      "ABC"),
              ElementsAre("\xCC\x80", "ABC"));
  EXPECT_THAT(scanned(""), ElementsAre());
}

TEST(O200kSplitter, AgreesWithThePatternAroundEveryCodePoint) {
  int different = 0;
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string x;
    base::append_utf8(x, c);
    const std::string text =
        x + "aB" + x + x + "C " + x + "1" + x + "\n" + x + "'s!" + x + "'S" + x;
    if (scanned(text) == pieces(by_pattern(), text)) continue;
    if (++different < 5) ADD_FAILURE() << std::hex << "U+" << c;
  }
  EXPECT_EQ(different, 0);
}

TEST(O200kSplitter, AgreesWithThePatternOnRandomText) {
  static constexpr std::string_view kUnits[] = {"a",
                                                "z",
                                                "s",
                                                "S",
                                                "T",
                                                "t",
                                                "re",
                                                "LL",
                                                "v",
                                                "E",
                                                "'",
                                                "'",
                                                " ",
                                                " ",
                                                "\n",
                                                "\r",
                                                "\t",
                                                "/",
                                                "!",
                                                "<|",
                                                "1",
                                                "42",
                                                "\xC3\x89",
                                                "\xC3\xA9",
                                                "\xC7\x85",
                                                "\xCA\xB0",
                                                "\xE4\xB8\xAD",
                                                "\xCC\x80",
                                                "\xE2\x83\x9D",
                                                "\xC5\xBF",
                                                "\xE2\x84\xAA",
                                                "\xC2\xA0",
                                                "\xC2\x85",
                                                "\xE3\x80\x80",
                                                "\xE1\xA0\x8E",
                                                "\xE2\x80\xA8",
                                                "\xEF\xBB\xBF",
                                                "\xE2\x85\xA7",
                                                "\xC2\xBD",
                                                "\xF0\x9F\x92\x96",
                                                "\xE2\x80\x8D",
                                                "\xE0\xA4\xA8\xE0\xA4\xAE",
                                                "\xF0\x9D\x90\x80",
                                                "\xF4\x8F\xBF\xBF"};
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 30'000; ++round) {
    std::string text;
    // Few different units a round, so that long runs and their ends come up.
    const uint64_t different = 1 + random() % 8;
    std::string_view units[8];
    for (std::string_view& unit : units) unit = kUnits[random() % std::size(kUnits)];
    for (uint64_t length = random() % 24; length > 0; --length) text += units[random() % different];
    ASSERT_EQ(scanned(text), pieces(by_pattern(), text)) << testing::PrintToString(text);
  }
}

// PCRE2's match limit must not change what an honest pattern does to a long piece.
TEST(O200kSplitter, AgreesWithThePatternOnLongRuns) {
  for (const std::string_view unit :
       {" ", "a", "A", "!", "\n", " \n", "\xE4\xB8\xAD", "A\xCC\x80"}) {
    std::string text;
    while (text.size() < 3'000'000) text += unit;
    text += "x y Zq";
    EXPECT_TRUE(scanned(text) == pieces(by_pattern(), text)) << unit;
  }
}

}  // namespace
}  // namespace pelton::tokenizer
