#include "cost_model/speech_time.h"

#include <gtest/gtest.h>

namespace pelton::cost_model {
namespace {

// Nothing but reading, or nothing but arithmetic: the other is free.
Hardware machine(double bytes_per_second, double rate) {
  return {.name = "m", .bytes_per_second = bytes_per_second, .rates = {{Arithmetic::kBf16, rate}}};
}
constexpr double kFree = 1e30;
constexpr Efficiency kAll{.bandwidth = 1, .compute = 1, .attention = 1, .overlap = 64};

SpeechShape small() {
  return {.hidden = 768,
          .vocab = 51865,
          .encoder = {.layers = 12, .inner = 3072},
          .decoder = {.layers = 12, .inner = 3072}};
}

SpeechTimeModel model_of(const SpeechShape& shape, const Hardware& hardware) {
  return *SpeechTimeModel::make({.hardware = hardware, .shape = shape, .efficiency = kAll});
}

TEST(SpeechTime, ParametersOfWhisperSmall) {
  // 241 734 912 with norms and biases.
  EXPECT_NEAR(small().parameters() / 241'734'912, 1, 0.002);
  EXPECT_DOUBLE_EQ(small().window_seconds(), 30);
}

// Of a shape of ones: 1500 positions, each through 3 taps and the encoder's 4 + 2, and 2 for the
// decoder's keys; 3000 frames through 3 taps; 1500 x 1500 pairs of 4 operations.
TEST(SpeechTime, EncoderCountsPositionsFramesAndPairs) {
  const SpeechShape ones{.hidden = 1,
                         .mel_bands = 1,
                         .vocab = 1,
                         .encoder = {.layers = 1, .inner = 1},
                         .decoder = {.layers = 1, .inner = 1}};
  const double operations = 2 * (3000 * 3 + 1500 * (3 + 6 + 2)) + 1500.0 * 1500 * 4;
  EXPECT_DOUBLE_EQ(model_of(ones, machine(kFree, 1)).encode_seconds(), operations);
  // 3 + 3 + 6 + 2 matrices of two bytes; keys and values of float32 at each position.
  EXPECT_DOUBLE_EQ(model_of(ones, machine(1, kFree)).encode_seconds(), 14 * 2 + 2 * 4 * 1500);
}

TEST(SpeechTime, AStepReadsWeightsOnceAndEachWindowsKeys) {
  const SpeechShape ones{.hidden = 1,
                         .mel_bands = 1,
                         .vocab = 10,
                         .encoder = {.layers = 1, .inner = 1},
                         .decoder = {.layers = 1, .inner = 1}};
  const SpeechTimeModel reads = model_of(ones, machine(1, kFree));
  const double weights = (4 + 2 + 2 + 10) * 2;
  EXPECT_DOUBLE_EQ(reads.step_seconds(1, 99), weights + 2 * 4 * 1600);
  EXPECT_DOUBLE_EQ(reads.step_seconds(4, 99), weights + 4 * 2 * 4 * 1600);
}

// As the step's time is linear in what stands before.
TEST(SpeechTime, AWindowIsItsEncoderItsPromptAndAStepForEachToken) {
  const SpeechTimeModel model = model_of(small(), machine(35e9, 473e9));
  const double text = 2 * model.step_seconds(2, 11);
  const std::vector<SpeechWindow> two(2, {.prompt_tokens = 10, .text_tokens = 2});
  EXPECT_DOUBLE_EQ(model.seconds(two),
                   2 * (model.encode_seconds() + model.prompt_seconds(10)) + text);
}

// Whose text has ended is in no step more.
TEST(SpeechTime, AShortTextLeavesTheBatch) {
  const SpeechTimeModel model = model_of(small(), machine(35e9, 473e9));
  const std::vector<SpeechWindow> mixed = {{.prompt_tokens = 10, .text_tokens = 30},
                                           {.prompt_tokens = 10, .text_tokens = 20}};
  EXPECT_DOUBLE_EQ(model.seconds(mixed), 2 * (model.encode_seconds() + model.prompt_seconds(10)) +
                                             20 * model.step_seconds(2, 20) +
                                             10 * model.step_seconds(1, 35));
}

TEST(SpeechTime, AFileIsWholeWindowsButForTheLast) {
  const std::vector<SpeechWindow> windows = speech_windows(small(), 4, 75);
  ASSERT_EQ(windows.size(), 3);
  EXPECT_DOUBLE_EQ(windows[0].prompt_tokens, 4);
  EXPECT_DOUBLE_EQ(windows[0].text_tokens, 120);
  EXPECT_DOUBLE_EQ(windows[1].prompt_tokens, 124);
  EXPECT_DOUBLE_EQ(windows[2].text_tokens, 60);
  EXPECT_EQ(speech_windows(small(), 4, 0.1).size(), 1);
  EXPECT_EQ(speech_windows(small(), 4, 300).size(), 10);
  // Half of the decoder's positions bound a window's text.
  EXPECT_DOUBLE_EQ(speech_windows(small(), 50, 30)[0].text_tokens, 223);
}

// A batch's text costs less than its windows' one by one, its encoders as much.
TEST(SpeechTime, ABatchSharesTheDecodersWeights) {
  const SpeechTimeModel model = model_of(small(), machine(35e9, 473e9));
  const std::vector<SpeechWindow> windows(4, {.prompt_tokens = 4, .text_tokens = 100});
  const double alone = model.seconds(std::span(windows).first(1));
  const double four = model.seconds(windows);
  EXPECT_LT(four, 4 * alone);
  EXPECT_GT(four, 4 * (model.encode_seconds() + model.prompt_seconds(4)));
}

TEST(SpeechTime, ArithmeticThatTheHardwareLacksIsRefused) {
  EXPECT_FALSE(SpeechTimeModel::make({.hardware = machine(1, 1),
                                      .shape = small(),
                                      .efficiency = kAll,
                                      .arithmetic = Arithmetic::kFp8})
                   .ok());
}

}  // namespace
}  // namespace pelton::cost_model
