#include "speech/sound_encoder.h"

#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "speech/sound_bytes.h"

namespace pelton::speech {
namespace {

std::string encoded(SoundEncoder& encoder, std::string_view first, std::string_view second) {
  std::string out;
  encoder.push(first, out);
  encoder.push(second, out);
  encoder.finish(out);
  return out;
}

TEST(SoundEncoder, WavAsItComesHasTheLargestSize) {
  const auto encoder = wav_encoder({.sample_rate = 24'000});
  EXPECT_EQ(encoded(*encoder, "abcd", "ef"), wav_header(24'000, std::nullopt) + "abcdef");
}

TEST(SoundEncoder, AWholeWavHasItsOwnSize) {
  const auto encoder = wav_encoder({.sample_rate = 24'000, .is_whole = true});
  EXPECT_EQ(encoded(*encoder, "abcd", "ef"), wav_header(24'000, 6) + "abcdef");
}

TEST(SoundEncoder, NothingIsAFileWithoutSamples) {
  std::string out;
  wav_encoder({.sample_rate = 24'000})->finish(out);
  EXPECT_EQ(out, wav_header(24'000, 0));
  out.clear();
  pcm_encoder()->finish(out);
  EXPECT_EQ(out, "");
}

TEST(SoundEncoder, PcmIsTheSamplesAlone) {
  EXPECT_EQ(encoded(*pcm_encoder(), "abcd", "ef"), "abcdef");
}

}  // namespace
}  // namespace pelton::speech
