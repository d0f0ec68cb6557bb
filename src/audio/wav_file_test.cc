#include "audio/wav_file.h"

#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

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
  file[32] = 4;  // bytes of a frame
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
  EXPECT_FALSE(with(22, 0).ok());                                   // channels
  EXPECT_EQ(with(20, 2).error().code, ErrorCode::kUnsupported);     // ADPCM
  EXPECT_EQ(with(34, 12).error().code, ErrorCode::kUnsupported);    // bits, in two bytes
  EXPECT_FALSE(read_wav(std::span(good).first(40), "a.wav").ok());  // no samples
}

TEST(WavFile, NumbersThatContradictEachOtherAreRefused) {
  struct Row {
    std::vector<std::pair<size_t, uint8_t>> bytes;
    std::string_view says;
  };
  const std::vector<uint8_t> good = write_wav({.sample_rate = 8000, .samples = {0.5f, 0.25f}});
  for (const Row& row : std::vector<Row>{
           {{{34, 7}}, "PCM of 7 bits"},
           {{{34, 0}}, "PCM of 0 bits"},
           {{{34, 40}}, "PCM of 40 bits"},
           {{{34, 8}}, "PCM of 8 bits and 1 channels are 1 bytes, and its 'fmt ' chunk says 2"},
           {{{34, 24}, {32, 4}}, "are 3 bytes, and its 'fmt ' chunk says 4"},
           {{{20, 3}}, "floats of 16 bits"},
           {{{22, 2}}, "2 channels are 4 bytes"},
           {{{24, 0}, {25, 0x28}, {26, 0x6B}, {27, 0xEE}}, "a sample rate of 4000000000"},
       }) {
    std::vector<uint8_t> file = good;
    for (const auto& [at, value] : row.bytes) file[at] = value;
    const auto read = read_wav(file, "a.wav");
    ASSERT_FALSE(read.ok()) << row.says;
    EXPECT_EQ(read.error().code, ErrorCode::kInvalidArgument) << row.says;
    EXPECT_NE(read.error().message.find(row.says), std::string::npos) << read.error().message;
  }
}

TEST(WavFile, WhatTheHeaderSaysMustBeThere) {
  const std::vector<uint8_t> good =
      write_wav({.sample_rate = 8000, .samples = {0.5f, 0.25f, -0.5f, 0.125f}});
  const auto sized = [&](uint32_t riff, uint32_t data) {
    std::vector<uint8_t> file = good;
    for (size_t i = 0; i < 4; ++i) file[4 + i] = static_cast<uint8_t>(riff >> (8 * i));
    for (size_t i = 0; i < 4; ++i) file[40 + i] = static_cast<uint8_t>(data >> (8 * i));
    return file;
  };
  const auto cut = read_wav(std::span(good).first(good.size() - 4), "a.wav");
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(cut.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(cut.error().message.find("its header says 8 bytes of samples, and 4 are there"),
            std::string::npos)
      << cut.error().message;
  EXPECT_FALSE(read_wav(std::span(good).first(44), "a.wav").ok());
  // As programs write it into a pipe, whose end they do not know.
  for (const uint32_t size : {0u, 0x7FFFF000u, 0x80000000u, 0xFFFFFFFFu, 0xFFFFFFDBu}) {
    for (const uint32_t riff : {0u, 0xFFFFFFFFu}) {
      const auto streamed = read_wav(sized(riff, size), "a.wav");
      ASSERT_TRUE(streamed.ok()) << size << streamed.error().message;
      EXPECT_EQ(streamed->samples, read_wav(good, "a.wav")->samples) << size;
    }
  }
  // Of a file whose length is right there is nothing.
  EXPECT_TRUE(read_wav(sized(44, 0), "a.wav")->samples.empty());
  // In a coding that others read the rule is the same.
  std::vector<uint8_t> other = good;
  other[20] = 7;
  EXPECT_EQ(read_wav(other, "a.wav").error().code, ErrorCode::kUnsupported);
  other.resize(other.size() - 4);
  EXPECT_EQ(read_wav(other, "a.wav").error().code, ErrorCode::kInvalidArgument);
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
