#include "base/terminal_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::base {
namespace {

TEST(TerminalText, E6_ForeignTextCannotSteerTheTerminal) {
  EXPECT_EQ(one_line("a\x1b[2Jb\nc\td\x07\x7f"), "a[2Jb c d");
  EXPECT_EQ(one_line("\xC2\x9B"
                     "31m"),
            "31m");  // a C1 control in UTF-8
  EXPECT_EQ(one_line("\x9B"
                     "31m"),
            "\xEF\xBF\xBD"
            "31m");  // and as a single byte
  EXPECT_EQ(one_line("größe"), "größe");
}

int widest(const std::string& text) {
  int most = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    most = std::max(most, text_columns(std::string_view(text).substr(at, end - at)));
    at = end + 1;
  }
  return most;
}

TEST(TerminalText, C7_TablesFitTheTerminal) {
  const TextTable table{
      .headers = {"layout", "answers at once", "first token", "lone stream"},
      .rows = {{"one device", "16", "28.16 ms", "8.90 ms"}, {"tp 2", "8", "1,234.50 ms", "-"}}};
  const std::string whole = text_table(table, 0, 2);
  EXPECT_EQ(whole,
            "  layout      answers at once  first token  lone stream\n"
            "  one device               16     28.16 ms      8.90 ms\n"
            "  tp 2                      8  1,234.50 ms            -\n");
  for (int width = 26; width < 80; ++width) {
    const std::string text = text_table(table, width, 2);
    EXPECT_LE(widest(text), width) << text;
    for (const char* cell : {"28.16 ms", "1,234.50 ms", "8.90 ms", "stream"}) {
      EXPECT_THAT(text, testing::HasSubstr(cell)) << width;
    }
  }
  // Headers are broken first, and only then columns stand below one another.
  EXPECT_EQ(text_table(table, 48, 2),
            "              answers                  lone\n"
            "  layout      at once  first token   stream\n"
            "  one device       16     28.16 ms  8.90 ms\n"
            "  tp 2              8  1,234.50 ms        -\n");
  EXPECT_EQ(text_table({}, 80, 0), "");
}

TEST(TerminalText, WordsAreBrokenAtBlanks) {
  EXPECT_EQ(wrapped_text("one two three", 9, 2), "  one two\n  three\n");
  EXPECT_EQ(wrapped_text("one two three", 0, 0), "one two three\n");
  EXPECT_EQ(wrapped_text("incomprehensibilities a", 5, 0), "incomprehensibilities\na\n");
}

}  // namespace
}  // namespace pelton::base
