#include "speech/audio_windows.h"

#include <gmock/gmock.h>

namespace pelton::speech {
namespace {

using testing::ElementsAre;

TEST(AudioWindows, OneForEachFrameFromTheFourthOn) {
  AudioWindows windows;
  for (int i = 0; i < 27; ++i) windows.push(i);
  EXPECT_EQ(windows.ready(), 0U);
  windows.push(27);
  EXPECT_EQ(windows.ready(), 1U);
  for (int i = 28; i < 48; ++i) windows.push(i);  // two frames and most of a third
  EXPECT_EQ(windows.ready(), 3U);
  EXPECT_EQ(windows.size(), 48U);
  const std::vector<AudioWindow> two = windows.take(2);
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(windows.ready(), 1U);
  for (int i = 0; i < 28; ++i) {
    EXPECT_EQ(two[0][static_cast<size_t>(i)], i);
    EXPECT_EQ(two[1][static_cast<size_t>(i)], i + 7);
  }
  EXPECT_EQ(windows.take(9).front()[0], 14);
  EXPECT_TRUE(windows.take(9).empty());
}

TEST(AudioWindows, EachCodeGoesToItsBook) {
  AudioWindow window;
  for (size_t i = 0; i < window.size(); ++i) window[i] = static_cast<int>(i);
  const auto books = books_of(window);
  EXPECT_THAT(books[0], ElementsAre(0, 7, 14, 21));
  EXPECT_THAT(books[1], ElementsAre(1, 4, 8, 11, 15, 18, 22, 25));
  EXPECT_THAT(books[2], ElementsAre(2, 3, 5, 6, 9, 10, 12, 13, 16, 17, 19, 20, 23, 24, 26, 27));
}

}  // namespace
}  // namespace pelton::speech
