#include "cli/paste_reader.h"

#include <gtest/gtest.h>

namespace pelton::cli {
namespace {

std::string typed_by(PasteReader& reader, std::string_view bytes) {
  std::string typed;
  for (const char byte : bytes) reader.push(byte, typed);
  return typed;
}

TEST(PasteReader, C1_SeveralPastedLinesAreOneQuestion) {
  PasteReader reader;
  const std::string typed =
      typed_by(reader, "Explain \x1b[200~int main() {\r\n\treturn 0;\r}\r\x1b[201~, please");
  EXPECT_EQ(typed, "Explain [pasted text 1: 3 lines], please");
  EXPECT_EQ(reader.restored(typed), "Explain int main() {\n\treturn 0;\n}, please");
  EXPECT_EQ(reader.restored(typed), typed);  // forgotten
}

TEST(PasteReader, ASingleLineIsAsIfTyped) {
  PasteReader reader;
  EXPECT_EQ(typed_by(reader, "a\x1b[200~b\tc\x03\x1b[Dd\n\x1b[201~e"), "ab c[Dde");
  EXPECT_EQ(typed_by(reader, "\x1b[200~\x1b[201~"), "");
}

TEST(PasteReader, KeysPassAsTheyAre) {
  PasteReader reader;
  EXPECT_EQ(typed_by(reader, "\x1b[A\x1b[2~x\x1b\x1b[Bx"), "\x1b[A\x1b[2~x\x1b\x1b[Bx");
  std::string typed = typed_by(reader, "\x1b");
  EXPECT_TRUE(reader.in_mark());
  reader.flush(typed);
  EXPECT_EQ(typed, "\x1b");
  EXPECT_FALSE(reader.in_mark());
}

TEST(PasteReader, TwoPastesAndOneThatNeverFits) {
  PasteReader reader;
  const std::string two = typed_by(reader, "\x1b[200~a\nb\x1b[201~ and \x1b[200~c\nd\ne\x1b[201~");
  EXPECT_EQ(reader.restored(two), "a\nb and c\nd\ne");
  const std::string large =
      "\x1b[200~" + std::string(PasteReader::kBytesMax + 10, 'x') + "\x1b[201~y";
  EXPECT_EQ(typed_by(reader, large).find("[a paste of over"), 0u);
  EXPECT_EQ(typed_by(reader, "z"), "z");
}

}  // namespace
}  // namespace pelton::cli
