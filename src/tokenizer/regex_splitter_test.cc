#include "tokenizer/regex_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/machine.h"
namespace pelton::tokenizer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> split(const std::vector<std::string>& patterns, std::string_view text) {
  const std::unique_ptr<RegexSplitter> splitter = RegexSplitter::compile(patterns).value();
  std::vector<std::string> out;
  splitter->split(text, [&](std::string_view piece) { out.emplace_back(piece); });
  return out;
}

TEST(RegexSplitter, KeepsWhatLiesBetweenMatches) {
  EXPECT_THAT(split({"[0-9]+"}, "ab12c3"), ElementsAre("ab", "12", "c", "3"));
  EXPECT_THAT(split({"x"}, "abc"), ElementsAre("abc"));
  EXPECT_THAT(split({}, "abc"), ElementsAre("abc"));
  EXPECT_THAT(split({"x"}, ""), ElementsAre());
}

TEST(RegexSplitter, LaterPatternsCutThePiecesOfEarlierOnes) {
  EXPECT_THAT(split({" ?[a-z0-9]+", "[0-9]"}, "ab12 c3"), ElementsAre("ab", "1", "2", " c", "3"));
}

TEST(RegexSplitter, EmptyMatchesCutAndGoOn) {
  EXPECT_THAT(split({"(?=b)"}, "abab"), ElementsAre("a", "ba", "b"));
  EXPECT_THAT(split({"q*"},
                    "\xC3\xA9"
                    "a"),
              ElementsAre("\xC3\xA9", "a"));
}

TEST(RegexSplitter, SpaceIsUnicodesWhiteSpace) {
  EXPECT_THAT(split({R"(\s+)"},
                    "a\xC2\x85\xE3\x80\x80"
                    "b\xE1\xA0\x8E"),
              ElementsAre("a", "\xC2\x85\xE3\x80\x80", "b\xE1\xA0\x8E"));
  EXPECT_THAT(split({R"([^\s]+)"},
                    "a\xE2\x80\xA8"
                    "b"),
              ElementsAre("a", "\xE2\x80\xA8", "b"));
  EXPECT_THAT(split({R"(\\s)"}, R"(a\s b)"), ElementsAre("a", R"(\s)", " b"));
}

TEST(RegexSplitter, NamesWhatIsWrongWithAPattern) {
  for (const char* bad : {"(", "[a", "a{2,1}", "(?<x", "\\p{Nonsense}", "(a{1,9999}){1,9999}"}) {
    const auto splitter = RegexSplitter::compile({"fine", bad});
    ASSERT_FALSE(splitter.ok()) << bad;
    EXPECT_EQ(splitter.error().code, ErrorCode::kBadCheckpoint);
    EXPECT_EQ(splitter.error().field, "1");
    EXPECT_THAT(splitter.error().message, HasSubstr("at byte"));
  }
  EXPECT_FALSE(RegexSplitter::compile({std::string(100'000, 'a')}).ok());
  EXPECT_FALSE(RegexSplitter::compile({std::string(5'000, '(')}).ok());
}

TEST(RegexSplitter, EndlessBacktrackingIsCutShort) {
  const std::string text = std::string(100'000, 'a') + "!";
  for (const char* pattern : {"(a+)+$", "(a|aa)+$", "(a*)*b", "(?:a?){40}a{40}$"}) {
    const int64_t start_ns = base::thread_cpu_ns();
    const std::vector<std::string> pieces = split({pattern}, text);
    const double took_s = static_cast<double>(base::thread_cpu_ns() - start_ns) * 1e-9;
    EXPECT_LT(took_s, 2.0) << pattern;
    std::string joined;
    for (const std::string& piece : pieces) joined += piece;
    EXPECT_EQ(joined, text) << pattern;
  }
}

}  // namespace
}  // namespace pelton::tokenizer
