#include "cli/terminal.h"

#include <cstdlib>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "cli/phased_progress.h"
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

TEST(Terminal, C7_TextWidthIsWhatTheEnvironmentSays) {
  std::FILE* file = std::tmpfile();
  const Terminal terminal(file);
  unsetenv("COLUMNS");
  EXPECT_EQ(terminal.text_width(0), 0);
  EXPECT_EQ(terminal.text_width(80), 80);
  for (const auto& [said, width] : {std::pair("60", 60), std::pair("3", 20), std::pair("x", 80),
                                    std::pair("-5", 80), std::pair("99999999999999", 80)}) {
    setenv("COLUMNS", said, 1);
    EXPECT_EQ(terminal.text_width(80), width) << said;
  }
  unsetenv("COLUMNS");
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

// C3: what matters most stays, however narrow the terminal and however long the label.
TEST(Progress, C3_TimeLeftStaysWhereThereIsLittleRoom) {
  const std::string label = "packing weights";
  for (int width = 40; width <= 200; ++width) {
    const std::string line = Progress::line(label, Progress::Unit::kBytes, int64_t{4} << 30,
                                            int64_t{13} << 30, 40, width);
    EXPECT_LE(line.size(), static_cast<size_t>(width));
    EXPECT_NE(line.find(" 31%"), std::string::npos) << line;
    EXPECT_NE(line.find("1m 30s left"), std::string::npos) << line;
  }
  const std::string long_label(300, 'x');
  EXPECT_NE(Progress::line(long_label, Progress::Unit::kBytes, 1 << 20, 4 << 20, 2.0, 80)
                .find("6.0 s left"),
            std::string::npos);
  EXPECT_EQ(Progress::line("waiting", Progress::Unit::kCount, 0, 0, 5, 80), "waiting");
}

// A9: without a terminal there is a line every ten seconds, over all parts of the work.
TEST(Progress, A9_LinesWhereThereIsNoTerminal) {
  if (is_terminal(stderr)) GTEST_SKIP() << "stderr is a terminal";
  base::VirtualClock clock;
  std::vector<std::string> lines;
  PhasedProgress progress(clock, [&](const std::string& line) { lines.push_back(line); });
  for (int second = 0; second <= 35; ++second) {
    if (second < 17) {
      progress.update("packing", second * 1'000'000, 17'000'000);
    } else {
      progress.update("loading", second - 17, 20);
    }
    clock.advance_ns(1'000'000'000);
  }
  ASSERT_EQ(lines.size(), 3u) << ::testing::PrintToString(lines);
  EXPECT_TRUE(lines[0].starts_with("packing")) << lines[0];
  EXPECT_NE(lines[0].find("left"), std::string::npos) << lines[0];
  EXPECT_TRUE(lines[1].starts_with("loading")) << lines[1];
}

}  // namespace
}  // namespace pelton::cli
