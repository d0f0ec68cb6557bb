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

// What a line editor does with keys, as far as these tests need it.
struct Line {
  PasteReader& reader;
  PasteReader::Edited now = {};

  void mend() {
    if (const auto mended = reader.mended(now)) now = *mended;
  }
  void insert(std::string_view typed) {
    now.text.insert(now.cursor, std::wstring(typed.begin(), typed.end()));
    now.cursor += typed.size();
    mend();
  }
  void move(int by) {
    now.cursor = static_cast<size_t>(static_cast<int>(now.cursor) + by);
    mend();
  }
  void erase(size_t before, size_t behind = 0) {
    now.text.erase(now.cursor - before, before + behind);
    now.cursor -= before;
    mend();
  }
  std::string text() const { return {now.text.begin(), now.text.end()}; }
};

TEST(PasteReader, C1_APlaceholderIsEditedAsOneCharacter) {
  PasteReader reader;
  Line line{reader};
  const std::string one = typed_by(reader, "\x1b[200~a\nb\x1b[201~");
  const std::string two = typed_by(reader, "\x1b[200~c\nd\x1b[201~");
  const auto start = [&] {
    line.now = {};
    line.insert("x ");
    line.insert(one);
    line.insert(" y ");
    line.insert(two);
  };
  const std::string both = "x " + one + " y " + two;
  start();
  ASSERT_EQ(line.text(), both);
  line.erase(1);  // backspace
  EXPECT_EQ(line.text(), "x " + one + " y ");
  line.erase(1);
  EXPECT_EQ(line.text(), "x " + one + " y");
  start();
  line.erase(6);  // a word: "lines]"
  EXPECT_EQ(line.text(), "x " + one + " y ");
  start();
  line.move(-1);  // left: over all of it, and back
  EXPECT_EQ(line.now.cursor, both.size() - two.size());
  line.move(+1);
  EXPECT_EQ(line.now.cursor, both.size());
  line.move(-1);
  line.erase(0, 1);  // delete
  EXPECT_EQ(line.text(), "x " + one + " y ");
  start();
  line.now.cursor -= two.size() + 1;
  line.mend();
  line.erase(4, 4);  // from within one to within the other: both go
  EXPECT_EQ(line.text(), "x ");
  start();
  line.erase(both.size());
  EXPECT_EQ(line.text(), "");
  line.insert("[" + one);  // it can come back, and what looks like a part of it may go
  line.now.cursor = 1;
  line.erase(1);
  EXPECT_EQ(line.text(), one);
  line.now.text[1] = L'P';  // a capital letter
  line.mend();
  EXPECT_EQ(reader.restored(line.text()), "a\nb");
}

TEST(PasteReader, EveryPlaceholderOfALineAndNothingInAPasteIsReplaced) {
  PasteReader reader;
  typed_by(reader, "\x1b[200~see\n[pasted text 2: 2 lines]\x1b[201~");
  typed_by(reader, "\x1b[200~c\nd\x1b[201~");
  EXPECT_EQ(reader.restored("[pasted text 1: 2 lines] [pasted text 2: 2 lines]"
                            "[pasted text 2: 2 lines]"),
            "see\n[pasted text 2: 2 lines] c\ndc\nd");
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
