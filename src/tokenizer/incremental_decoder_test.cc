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
  EXPECT_EQ(steps({"a\xE2", "\x82", "\xAC" "b"}), (Steps{"a", "", "\xE2\x82\xAC" "b", ""}));
}

TEST(IncrementalDecoder, ReplacesAsSoonAsItIsCertain) {
  EXPECT_EQ(steps({" \xF0\x9F", " \xF0\x9F", "worked"}),
            (Steps{" ", "\xEF\xBF\xBD ", "\xEF\xBF\xBD" "worked", ""}));
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

// However bytes are cut into tokens, the text is that of the whole, and as much of it is out as no
// continuation could change.
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
      const std::string with_a = base::replace_invalid_utf8(whole + "a");
      const std::string with_tail = base::replace_invalid_utf8(whole + "\x80\x80\x80");
      ASSERT_TRUE(with_a.starts_with(out) && with_tail.starts_with(out));
    }
    decoder.finish(out);
    ASSERT_EQ(out, base::replace_invalid_utf8(whole));
  }
}

}  // namespace
}  // namespace pelton::tokenizer
