#include "models/whisper_alignment.h"

#include <cmath>

#include <gtest/gtest.h>

#include "audio/log_mel.h"
#include "audio/wav_file.h"
#include "base/file.h"
#include "models/whisper_decoding.h"
#include "models/whisper_transcription.h"

namespace pelton::models {
namespace {

const std::string kFolder = PELTON_SOURCE_DIR "/testdata/golden/audio/whisper";

TEST(WhisperAlignment, ThePathIsTheCheapest) {
  EXPECT_EQ(cheapest_entries(std::vector<double>{0, 1, 1, 1, 0, 0}, 2, 3),
            (std::vector<int>{0, 1}));
  // Three rows of a cost that is low along 0 0 1 1 2 2 and high elsewhere.
  const std::vector<double> stairs = {0, 0, 9, 9, 9, 9, 9, 9, 0, 0, 9, 9, 9, 9, 9, 9, 0, 0};
  EXPECT_EQ(cheapest_entries(stairs, 3, 6), (std::vector<int>{0, 2, 4}));
  EXPECT_EQ(cheapest_entries(std::vector<double>{5}, 1, 1), (std::vector<int>{0}));
  // More rows than columns: several are entered at one.
  EXPECT_EQ(cheapest_entries(std::vector<double>(8, 1.0), 4, 2).front(), 0);
}

class WhisperLooks : public testing::Test {
 protected:
  void SetUp() override {
    kernels_ = kernels::make_kernels(kernels::KernelChoice::kReference, pool_).value();
    model_ = Whisper::load(kFolder, *kernels_).value();
    const std::string file = *base::read_file(kFolder + "/audio.wav");
    samples_ =
        audio::read_wav({reinterpret_cast<const uint8_t*>(file.data()), file.size()}, "audio.wav")
            ->samples;
  }

  WhisperWindow window() {
    std::vector<float> padded = samples_;
    padded.resize(480'000);
    return model_->window(model_->encode(audio::LogMel(80).of(padded)));
  }

  base::ThreadPool pool_{{.threads = 2, .pin = false}};
  std::unique_ptr<kernels::Kernels> kernels_;
  std::unique_ptr<Whisper> model_;
  std::vector<float> samples_;
};

TEST_F(WhisperLooks, AreSharesOfTheSoundAndChangeNoLogit) {
  WhisperWindow one = window();
  const std::vector<TokenId> tokens = {257, 258, 65, 66, 67};
  const std::span<const float> logits = model_->step(one, tokens);
  const std::vector<float> before(logits.begin(), logits.end());
  one.rewind(0);
  const std::vector<WhisperConfig::Head> heads = {{.layer = 0, .head = 1}, {.layer = 1, .head = 3}};
  const Whisper::Looks looks = model_->step_looking(one, tokens, heads, 365);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), looks.logits.begin()));
  ASSERT_EQ(looks.weights.size(), 2u * 5u * 365u);
  for (size_t row = 0; row < 10; ++row) {
    double all = 0.0;
    for (size_t p = 0; p < 365; ++p) all += looks.weights[row * 365 + p];
    EXPECT_NEAR(all, 1.0, 1e-4) << row;
  }
  // Another head looks elsewhere.
  EXPECT_FALSE(std::equal(looks.weights.begin(), looks.weights.begin() + 1825,
                          looks.weights.begin() + 1825));
}

TEST_F(WhisperLooks, ATemperatureDrawsTheSameEachTime) {
  WhisperWindow one = window();
  const auto text = [&](double temperature, uint64_t seed) {
    return decode_window(*model_, one,
                         {.language = model_->config().start + 1,
                          .tokens_max = 40,
                          .temperature = temperature,
                          .seed = seed},
                         [] { return true; })
        .tokens;
  };
  const std::vector<TokenId> greedy = text(0.0, 1);
  EXPECT_EQ(text(0.0, 2), greedy);
  const std::vector<TokenId> drawn = text(1.0, 1);
  EXPECT_EQ(text(1.0, 1), drawn);
  EXPECT_NE(drawn, greedy);
  EXPECT_NE(text(1.0, 2), drawn);
}

// Text that repeats itself is decoded anew up to 1.0; text that does not is left.
TEST_F(WhisperLooks, DoubtfulWindowsAreDecodedAnew) {
  const audio::LogMel front(80);
  const auto temperature = [&](double ratio, bool falls_back) {
    WhisperTranscription made(
        model_->config(), samples_, {.language = "l0", .falls_back = falls_back},
        [&](std::span<const float> sound) { return front.of(sound); },
        [&](std::span<const TokenId>) { return ratio; });
    const auto go_on = [] { return true; };
    while (made.step(*model_, go_on).value()) continue;
    return made.segments().empty() ? -1.0 : made.segments().front().temperature;
  };
  EXPECT_NEAR(temperature(3.0, true), 1.0, 1e-9);
  EXPECT_EQ(temperature(3.0, false), 0.0);
}

TEST_F(WhisperLooks, WhoStopsIsStoppedWithinAWindow) {
  const audio::LogMel front(80);
  WhisperTranscription made(model_->config(), samples_, {.language = "l0"},
                            [&](std::span<const float> sound) { return front.of(sound); }, {});
  int asked = 0;
  const auto stopped = made.step(*model_, [&] { return ++asked < 10; });
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(asked, 10);
}

}  // namespace
}  // namespace pelton::models
