#include "speech/sound_bytes.h"

#include <array>
#include <cmath>

#include <gmock/gmock.h>

namespace pelton::speech {
namespace {

TEST(SoundBytes, SamplesAreCutTowardsZero) {
  std::string pcm;
  append_pcm(std::array{0.0f, 1.0f, -1.0f, 2.0f, 0.99999f, -0.00004f, NAN}, pcm);
  EXPECT_EQ(pcm, std::string("\0\0\xff\x7f\x01\x80\xff\x7f\xfe\x7f\xff\xff\0\0", 14));
}

TEST(SoundBytes, AWavHeaderSaysItsSizes) {
  const std::string header = wav_header(24'000, 8);
  ASSERT_EQ(header.size(), 44U);
  EXPECT_EQ(header.substr(0, 4), "RIFF");
  EXPECT_EQ(header.substr(4, 4), std::string("\x2c\0\0\0", 4));
  EXPECT_EQ(header.substr(8, 8), "WAVEfmt ");
  EXPECT_EQ(header.substr(16, 8), std::string("\x10\0\0\0\x01\0\x01\0", 8));
  EXPECT_EQ(header.substr(24, 8), std::string("\xc0\x5d\0\0\x80\xbb\0\0", 8));
  EXPECT_EQ(header.substr(32, 4), std::string("\x02\0\x10\0", 4));
  EXPECT_EQ(header.substr(36), std::string("data\x08\0\0\0", 8));
  const std::string open = wav_header(24'000, std::nullopt);
  EXPECT_EQ(open.substr(4, 4), "\xff\xff\xff\xff");
  EXPECT_EQ(open.substr(40), "\xff\xff\xff\xff");
  EXPECT_EQ(wav_header(24'000, uint64_t{1} << 32).substr(40), "\xff\xff\xff\xff");
}

}  // namespace
}  // namespace pelton::speech
