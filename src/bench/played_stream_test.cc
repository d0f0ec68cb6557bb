#include "bench/played_stream.h"

#include <gtest/gtest.h>

namespace pelton::bench {
namespace {

TEST(PlayedStream, SoundThatComesInTimeIsPlayedThrough) {
  PlayedStream player(0.0);
  for (int i = 0; i < 10; ++i) player.arrive(5.0 + 0.08 * i, 0.085);
  EXPECT_NEAR(player.sound_s(), 0.85, 1e-9);
  EXPECT_EQ(player.underruns(), 0);
  EXPECT_EQ(player.waited_s(), 0.0);
}

TEST(PlayedStream, ItWaitsForWhatIsLateAndGoesOnFromThere) {
  PlayedStream player(0.0);
  player.arrive(0.0, 0.1);
  player.arrive(0.3, 0.1);  // 0.2 s late
  player.arrive(0.35, 0.1);
  player.arrive(0.49, 0.1);  // would have been late but for the wait
  EXPECT_EQ(player.underruns(), 1);
  EXPECT_NEAR(player.waited_s(), 0.2, 1e-9);
  player.arrive(0.7, 0.1);
  EXPECT_EQ(player.underruns(), 2);
  EXPECT_NEAR(player.waited_s(), 0.3, 1e-9);
}

TEST(PlayedStream, ABufferBearsWhatIsLate) {
  PlayedStream player(0.2);
  player.arrive(0.0, 0.1);
  player.arrive(0.3, 0.1);  // begins here
  player.arrive(0.5, 0.1);  // just in time
  EXPECT_EQ(player.underruns(), 0);
  player.arrive(0.7, 0.1);
  EXPECT_EQ(player.underruns(), 1);
}

TEST(PlayedStream, NoSoundIsNoArrival) {
  PlayedStream player(0.0);
  player.arrive(0.0, 0.0);
  player.arrive(9.0, 0.1);
  EXPECT_EQ(player.underruns(), 0);
  EXPECT_NEAR(player.sound_s(), 0.1, 1e-9);
}

}  // namespace
}  // namespace pelton::bench
