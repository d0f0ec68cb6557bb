// However the bytes are cut, the samples are those of the whole recording.
#include "speech/live_input.h"

#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "audio/resample.h"

namespace pelton::speech {
namespace {

std::string pcm_of(size_t count) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) {
    const auto value =
        static_cast<int16_t>(12000.0 * std::sin(static_cast<double>(i) * 0.05 + 1.0));
    bytes += static_cast<char>(value & 0xFF);
    bytes += static_cast<char>(value >> 8 & 0xFF);
  }
  return bytes;
}

TEST(LiveInput, PcmInPiecesIsPcmInOne) {
  const std::string bytes = pcm_of(24'000);
  std::vector<float> exact(24'000);
  for (size_t i = 0; i < exact.size(); ++i) {
    const double value = std::trunc(12000.0 * std::sin(static_cast<double>(i) * 0.05 + 1.0));
    exact[i] = static_cast<float>(value) / 32768.0F;
  }
  LiveInput input(LiveInput::Format::kPcm16);
  ASSERT_EQ(input.sample_bytes(), 2U);
  std::vector<float> samples;
  for (size_t at = 0; at < bytes.size(); at += 962) {
    input.push(std::string_view(bytes).substr(at, 962), samples);
  }
  input.finish(samples);
  EXPECT_EQ(samples, audio::resample(exact, 24'000, 16'000));
  EXPECT_EQ(samples.size(), 16'000U);
  // Another recording behind it knows nothing of the first.
  std::vector<float> again;
  input.push(bytes, again);
  input.finish(again);
  EXPECT_EQ(again, samples);
}

TEST(LiveInput, TelephoneSoundIsOfEightKilohertz) {
  LiveInput input(LiveInput::Format::kMuLaw);
  ASSERT_EQ(input.sample_bytes(), 1U);
  std::vector<float> samples;
  input.push(std::string(8'000, '\x80'), samples);
  input.finish(samples);
  ASSERT_EQ(samples.size(), 16'000U);
  EXPECT_NEAR(samples[8'000], 32124.0F / 32768.0F, 1e-3);
  LiveInput other(LiveInput::Format::kALaw);
  samples.clear();
  other.push(std::string(8'000, '\xD5'), samples);
  other.finish(samples);
  ASSERT_EQ(samples.size(), 16'000U);
  EXPECT_NEAR(samples[8'000], 8.0F / 32768.0F, 1e-5);
}

}  // namespace
}  // namespace pelton::speech
