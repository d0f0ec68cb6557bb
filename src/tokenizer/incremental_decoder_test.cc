#include "tokenizer/incremental_decoder.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace pelton::tokenizer {
namespace {

// What comes out after each push, and at the end.
std::vector<std::string> steps(const std::vector<std::string>& tokens) {
  IncrementalDecoder decoder;
  std::vector<std::string> out;
  for (const std::string& token : tokens) decoder.push(token, out.emplace_back());
  decoder.finish(out.emplace_back());
  return out;
}

using Steps = std::vector<std::string>;

TEST(IncrementalDecoder, HoldsBackHalfACharacter) {
  EXPECT_EQ(steps({"\xF0\x9F\x92", "\x96"}), (Steps{"", "\xF0\x9F\x92\x96", ""}));
  EXPECT_EQ(steps({"a\xE2", "\x82",
                   "\xAC"
                   "b"}),
            (Steps{"a", "",
                   "\xE2\x82\xAC"
                   "b",
                   ""}));
}

TEST(IncrementalDecoder, ReplacesAsSoonAsItIsCertain) {
  EXPECT_EQ(steps({" \xF0\x9F", " \xF0\x9F", "worked"}), (Steps{" ", "\xEF\xBF\xBD ",
                                                                "\xEF\xBF\xBD"
                                                                "worked",
                                                                ""}));
  EXPECT_EQ(steps({"\xFF\xC0"}), (Steps{"\xEF\xBF\xBD\xEF\xBF\xBD", ""}));
  EXPECT_EQ(steps({"\xE0", "\x80"}), (Steps{"", "\xEF\xBF\xBD\xEF\xBF\xBD", ""}));
}

TEST(IncrementalDecoder, FinishReplacesWhatIsHeld) {
  EXPECT_EQ(steps({"x\xF0\x9F\x92"}), (Steps{"x", "\xEF\xBF\xBD"}));
  IncrementalDecoder decoder;
  std::string out;
  decoder.push("\xE2", out);
  EXPECT_FALSE(decoder.empty());
  decoder.finish(out);
  EXPECT_TRUE(decoder.empty());
  decoder.finish(out);
  EXPECT_EQ(out, "\xEF\xBF\xBD");
}

// Whether some continuation of `whole` has no replacement character behind `out`.
bool can_become_a_character(const std::string& whole, const std::string& out) {
  const std::string replaced = out + std::string(base::kReplacementCharacter);
  for (const char* more : {"\x80\x80\x80", "\x90\x80\x80", "\xA0\x80\x80"}) {
    if (!base::replace_invalid_utf8(whole + more).starts_with(replaced)) return true;
  }
  return false;
}

// However bytes are cut into tokens, the text is that of the whole, and only what a continuation
// could still change is held back.
TEST(IncrementalDecoder, TheCutsDoNotMatter) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  static constexpr std::string_view kParts[] = {"a",    "\xC3", "\xA9", "\xE2",         "\x82",
                                                "\xAC", "\xF0", "\x9F", "\x92",         "\x96",
                                                "\xED", "\xA0", "\xFF", "\xE2\x82\xAC", "\xF4"};
  for (int round = 0; round < 3000; ++round) {
    IncrementalDecoder decoder;
    std::string whole;
    std::string out;
    for (int tokens = 0; tokens < 12; ++tokens) {
      std::string token;
      for (uint64_t parts = random() % 4; parts > 0; --parts) {
        token += kParts[random() % std::size(kParts)];
      }
      whole += token;
      decoder.push(token, out);
      ASSERT_EQ(base::replace_invalid_utf8(whole),
                decoder.empty() ? out : out + std::string(base::kReplacementCharacter));
      ASSERT_TRUE(decoder.empty() || can_become_a_character(whole, out));
    }
    decoder.finish(out);
    ASSERT_EQ(out, base::replace_invalid_utf8(whole));
  }
}

}  // namespace
}  // namespace pelton::tokenizer
