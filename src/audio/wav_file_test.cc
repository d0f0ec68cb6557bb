#include "audio/wav_file.h"

#include <cmath>

#include <gtest/gtest.h>

#include "audio/resample.h"

namespace pelton::audio {
namespace {

TEST(WavFile, WhatIsWrittenIsRead) {
  const Sound sound{.sample_rate = 24'000, .samples = {0.0f, 0.5f, -1.0f, 2.0f}};
  const auto read = read_wav(write_wav(sound), "a.wav");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->sample_rate, 24'000);
  ASSERT_EQ(read->samples.size(), 4u);
  EXPECT_NEAR(read->samples[1], 0.5f, 1e-4);
  EXPECT_NEAR(read->samples[3], 1.0f, 1e-4);  // cut
}

TEST(WavFile, ChannelsAreAveraged) {
  std::vector<uint8_t> file =
      write_wav({.sample_rate = 8000, .samples = {0.5f, -0.5f, 0.25f, 0.75f}});
  file[22] = 2;  // channels
  const auto read = read_wav(file, "a.wav");
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->samples.size(), 2u);
  EXPECT_NEAR(read->samples[0], 0.0f, 1e-4);
  EXPECT_NEAR(read->samples[1], 0.5f, 1e-4);
}

TEST(WavFile, WhatIsNoneIsSaid) {
  const std::vector<uint8_t> good = write_wav({.sample_rate = 8000, .samples = {0.5f}});
  const auto with = [&](size_t at, uint8_t value) {
    std::vector<uint8_t> file = good;
    file[at] = value;
    return read_wav(file, "a.wav");
  };
  EXPECT_FALSE(read_wav({}, "a.wav").ok());
  EXPECT_FALSE(with(0, 'X').ok());
  EXPECT_FALSE(with(22, 0).ok());                                              // channels
  EXPECT_EQ(with(20, 2).error().code, ErrorCode::kUnsupported);                // ADPCM
  EXPECT_EQ(with(34, 12).error().code, ErrorCode::kUnsupported);               // bits
  EXPECT_FALSE(read_wav(std::span(good).first(40), "a.wav").ok());             // no samples
  EXPECT_TRUE(read_wav(std::span(good).first(44), "a.wav")->samples.empty());  // cut short
}

TEST(Resample, AToneStaysATone) {
  std::vector<float> tone;
  for (int i = 0; i < 4410; ++i)
    tone.push_back(static_cast<float>(std::sin(2 * M_PI * 440 * i / 44'100)));
  const std::vector<float> made = resample(tone, 44'100, 16'000);
  ASSERT_EQ(made.size(), 1600u);
  for (size_t i = 200; i < 1400; ++i) {
    EXPECT_NEAR(made[i], std::sin(2 * M_PI * 440 * static_cast<double>(i) / 16'000), 1e-3) << i;
  }
  EXPECT_EQ(resample(tone, 8000, 8000), tone);
}

TEST(Resample, PiecesMakeNoDifference) {
  std::vector<float> noise;
  uint32_t state = 1;
  for (int i = 0; i < 20'000; ++i) {
    state = state * 1664525u + 1013904223u;
    noise.push_back(static_cast<float>(state >> 8) / 8388608.0f - 1.0f);
  }
  // Few phases, one, many; down and up.
  for (const int rate : {44'100, 48'000, 8000, 44'101, 15'999, 192'000}) {
    const std::vector<float> whole = resample(noise, rate, 16'000);
    EXPECT_EQ(whole.size(), std::max<size_t>(1, noise.size() * 16'000 / static_cast<size_t>(rate)));
    Resampler resampler(rate, 16'000);
    std::vector<float> made;
    size_t size = 1;
    for (size_t at = 0; at < noise.size(); size = size * 3 + 1) {
      const size_t count = std::min(size, noise.size() - at);
      resampler.push(std::span(noise).subspan(at, count), made);
      at += count;
    }
    resampler.finish(made);
    EXPECT_EQ(made, whole) << rate;
  }
}

}  // namespace
}  // namespace pelton::audio
