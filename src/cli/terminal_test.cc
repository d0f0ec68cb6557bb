#include "cli/terminal.h"

#include <gtest/gtest.h>

#include "cli/progress.h"

namespace pelton::cli {
namespace {

TEST(Terminal, AFileIsNoTerminal) {
  std::FILE* file = std::tmpfile();
  const Terminal terminal(file);
  EXPECT_FALSE(terminal.styled());
  EXPECT_EQ(terminal.dim("x"), "x");
  EXPECT_EQ(terminal.width(), 80);
  std::fclose(file);
}

TEST(Terminal, ControlsAreDropped) {
  EXPECT_EQ(without_controls("a\x1b[2Jb\tc\nd\x07\x7f"), "a[2Jb\tc\nd");
  EXPECT_EQ(without_controls("caf\xC3\xA9 \xC2\x9B!"), "caf\xC3\xA9 !");
}

TEST(Progress, LineShowsShareRateAndTimeLeft) {
  const std::string line =
      Progress::line("loading", Progress::Unit::kBytes, 1 << 20, 4 << 20, 2.0, 100);
  EXPECT_NE(line.find("25%"), std::string::npos) << line;
  EXPECT_NE(line.find("512 KiB/s"), std::string::npos) << line;
  EXPECT_NE(line.find("6.0 s left"), std::string::npos) << line;
  for (int width = 0; width < 120; ++width) {
    EXPECT_LE(Progress::line("x", Progress::Unit::kCount, 5, 5, 1.0, width).size(),
              static_cast<size_t>(width));
  }
}

}  // namespace
}  // namespace pelton::cli
