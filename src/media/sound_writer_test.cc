// What is written is read again by the decoder of sound_child.
#include "media/sound_writer.h"

#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "media/sound_child.h"
#include "media/sound_format.h"

namespace pelton::media {
namespace {

constexpr int kRate = 24'000;
constexpr double kSeconds = 2.0;

std::vector<int16_t> tone() {
  std::vector<int16_t> samples;
  for (int i = 0; i < static_cast<int>(kSeconds * kRate); ++i) {
    samples.push_back(static_cast<int16_t>(12'000.0 * std::sin(2.0 * M_PI * 440.0 * i / kRate)));
  }
  return samples;
}

struct Written {
  std::string file;
  size_t before_finish = 0;
};

Written written(std::string_view format, std::span<const int16_t> samples, size_t piece,
                bool is_whole = false) {
  auto writer = SoundWriter::create({.format = format, .sample_rate = kRate, .is_whole = is_whole});
  EXPECT_TRUE(writer.ok()) << writer.error().message;
  Written made;
  for (size_t at = 0; at < samples.size(); at += piece) {
    (*writer)->push(samples.subspan(at, std::min(piece, samples.size() - at)), made.file);
  }
  made.before_finish = made.file.size();
  (*writer)->finish(made.file);
  return made;
}

std::span<const uint8_t> bytes(const std::string& file) {
  return {reinterpret_cast<const uint8_t*>(file.data()), file.size()};
}

class Collected final : public SampleSink {
 public:
  bool write(std::span<const float> samples) override {
    samples_.insert(samples_.end(), samples.begin(), samples.end());
    return true;
  }
  const std::vector<float>& samples() const { return samples_; }

 private:
  std::vector<float> samples_;
};

std::vector<float> read_again(const std::string& file) {
  Collected collected;
  const Result<void> read = decode_sound(bytes(file), 60.0, collected);
  EXPECT_TRUE(read.ok()) << read.error().message;
  return collected.samples();
}

// How much of it is a tone of this frequency, from 0 to 1, of 16 kHz.
double share(std::span<const float> samples, double hz) {
  double sine = 0.0;
  double cosine = 0.0;
  double all = 0.0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const double phase = 2.0 * M_PI * hz * static_cast<double>(i) / 16'000.0;
    sine += samples[i] * std::sin(phase);
    cosine += samples[i] * std::cos(phase);
    all += static_cast<double>(samples[i]) * samples[i];
  }
  return 2.0 * (sine * sine + cosine * cosine) / (all * static_cast<double>(samples.size()));
}

class Writes : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!testing::Value(written_formats(kRate), testing::Contains(GetParam()))) {
      GTEST_SKIP() << "this libsndfile does not write " << GetParam();
    }
  }
};

TEST_P(Writes, WhatIsReadAgainIsWhatWasWritten) {
  for (const bool is_whole : {false, true}) {
    const std::string file = written(GetParam(), tone(), 2048, is_whole).file;
    const std::vector<float> samples = read_again(file);
    // Coders add silence at the ends, where a file that was handed out at once cannot say how much.
    EXPECT_NEAR(static_cast<double>(samples.size()) / 16'000.0, kSeconds, is_whole ? 0.01 : 0.15);
    const auto middle = std::span(samples).subspan(4'000, 20'000);
    EXPECT_GT(share(middle, 440.0), 0.99);
    EXPECT_LT(share(middle, 523.0), 0.01);
  }
}

TEST_P(Writes, TheSameSamplesAreTheSameBytesHoweverTheyAreCut) {
  const std::vector<int16_t> samples = tone();
  const Written first = written(GetParam(), samples, 2048);
  EXPECT_EQ(written(GetParam(), samples, 2048).file, first.file);
  EXPECT_EQ(written(GetParam(), samples, 7 * 2048).file, first.file);
  EXPECT_EQ(written(GetParam(), samples, 1000).file, first.file);
}

// All but what coders hold back comes at once; of a whole file nothing does.
TEST_P(Writes, BytesComeWithTheSamples) {
  const std::vector<int16_t> samples = tone();
  const Written streamed = written(GetParam(), samples, 2048);
  EXPECT_GT(streamed.before_finish, streamed.file.size() * 8 / 10);
  EXPECT_EQ(written(GetParam(), samples, 2048, true).before_finish, 0u);
}

TEST_P(Writes, NothingIsAFewBytes) {
  for (const bool is_whole : {false, true}) {
    const std::string file = written(GetParam(), {}, 2048, is_whole).file;
    EXPECT_LT(file.size(), 2000u);
  }
}

TEST_P(Writes, WhatItIsStandsAtItsBeginning) {
  const std::string file = written(GetParam(), tone(), 2048).file;
  const SoundFormat format = sound_format(bytes(file));
  EXPECT_EQ(format, GetParam() == "mp3"    ? SoundFormat::kMp3
                    : GetParam() == "flac" ? SoundFormat::kFlac
                                           : SoundFormat::kOgg);
}

INSTANTIATE_TEST_SUITE_P(SoundWriter, Writes, testing::Values("mp3", "opus", "flac"),
                         [](const auto& info) { return info.param; });

TEST(SoundWriter, ARateThatAFormatDoesNotHaveIsRefused) {
  const auto refused = SoundWriter::create({.format = "opus", .sample_rate = 44'100});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(testing::Value(written_formats(44'100), testing::Contains("opus")), false);
}

}  // namespace
}  // namespace pelton::media
