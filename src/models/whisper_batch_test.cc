// Recordings that are decoded in one batch come to what each comes to alone.
#include <cmath>
#include <cstdlib>
#include <numbers>

#include <gtest/gtest.h>

#include "audio/log_mel.h"
#include "models/whisper_transcription.h"

namespace pelton::models {
namespace {

const std::string kFolder = PELTON_SOURCE_DIR "/testdata/golden/audio/whisper";

std::vector<float> tone(double seconds, double hertz) {
  std::vector<float> samples(static_cast<size_t>(seconds * 16'000.0));
  for (size_t i = 0; i < samples.size(); ++i) {
    const double t = static_cast<double>(i) / 16'000.0;
    samples[i] =
        static_cast<float>(0.4 * std::sin(2.0 * std::numbers::pi * hertz * t * (1.0 + 0.05 * t)));
  }
  return samples;
}

struct Case {
  double seconds;
  double hertz;
  TranscriptionTask task;
};

class WhisperBatch : public testing::TestWithParam<kernels::KernelChoice> {
 protected:
  void SetUp() override {
    auto made = kernels::make_kernels(GetParam(), pool_);
    if (!made.ok()) GTEST_SKIP() << made.error().message;
    kernels_ = std::move(made).value();
    model_ = Whisper::load(kFolder, *kernels_).value();
  }

  WhisperTranscription begun(const Case& one) const {
    return {model_->config(), tone(one.seconds, one.hertz), one.task,
            [](std::span<const float> sound) { return audio::LogMel(80).of(sound); },
            // So that some windows are doubtful whatever their likelihood.
            [](std::span<const TokenId> text) { return text.size() % 3 == 0 ? 3.0 : 1.0; }};
  }

  base::ThreadPool pool_{{.threads = 2, .pin = false}};
  std::unique_ptr<kernels::Kernels> kernels_;
  std::unique_ptr<Whisper> model_;
};

void expect_equal(const WhisperTranscription& one, const WhisperTranscription& other) {
  EXPECT_EQ(one.language(), other.language());
  ASSERT_EQ(one.segments().size(), other.segments().size());
  for (size_t i = 0; i < one.segments().size(); ++i) {
    const WhisperSegment& a = one.segments()[i];
    const WhisperSegment& b = other.segments()[i];
    EXPECT_EQ(a.tokens, b.tokens) << i;
    EXPECT_EQ(a.begin_s, b.begin_s) << i;
    EXPECT_EQ(a.end_s, b.end_s) << i;
    EXPECT_EQ(a.temperature, b.temperature) << i;
    EXPECT_EQ(a.average_logprob, b.average_logprob) << i;
    EXPECT_EQ(a.no_speech, b.no_speech) << i;
  }
}

TEST_P(WhisperBatch, EachIsAsAlone) {
  if (GetParam() == kernels::KernelChoice::kReference && std::getenv("PELTON_FULL") == nullptr) {
    GTEST_SKIP() << "most of a minute: PELTON_FULL=1";
  }
  const std::vector<Case> cases = {
      {3.0, 220.0, {.language = {}, .prompt = {}}},
      {40.0, 330.0, {.language = "l0", .prompt = {5, 6, 7}, .falls_back = false}},
      {9.0, 440.0, {.language = "l1", .timestamps = false, .prompt = {}, .falls_back = false}},
      {33.0, 150.0, {.language = {}, .prompt = {}, .temperature = 0.4}},
      {2.0,
       700.0,
       {.language = "l0", .prompt = {}, .falls_back = false, .search = {.beam_size = 3}}}};
  const auto goes_on = [] { return true; };
  std::vector<WhisperTranscription> alone;
  std::vector<WhisperTranscription> together;
  for (const Case& one : cases) {
    alone.push_back(begun(one));
    together.push_back(begun(one));
    for (int i = 0; i < 3; ++i) {
      const Result<bool> more = alone.back().step(*model_, goes_on);
      ASSERT_TRUE(more.ok());
      if (!*more) break;
    }
  }
  std::vector<bool> has_more(cases.size(), true);
  for (int round = 0; round < 3; ++round) {
    std::vector<WhisperTranscription::Turn> turns;
    std::vector<size_t> whose;
    for (size_t i = 0; i < cases.size(); ++i) {
      if (!has_more[i]) continue;
      turns.push_back({.recording = &together[i], .go_on = goes_on});
      whose.push_back(i);
    }
    if (turns.empty()) break;
    const auto results = WhisperTranscription::step_all(*model_, turns);
    ASSERT_EQ(results.size(), turns.size());
    for (size_t i = 0; i < results.size(); ++i) {
      ASSERT_TRUE(results[i].ok());
      has_more[whose[i]] = *results[i];
    }
  }
  size_t segments = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    expect_equal(together[i], alone[i]);
    segments += alone[i].segments().size();
  }
  EXPECT_GT(segments, 0U);
}

TEST_P(WhisperBatch, WhoStopsEndsForItselfAlone) {
  const Case one{4.0, 220.0, {.language = "l0", .prompt = {}}};
  WhisperTranscription alone = begun(one);
  const auto goes_on = [] { return true; };
  const Result<bool> exact = alone.step(*model_, goes_on);
  WhisperTranscription kept = begun(one);
  WhisperTranscription left = begun(one);
  int asked = 0;
  const std::vector<WhisperTranscription::Turn> turns = {
      {.recording = &left, .go_on = [&] { return ++asked < 6; }},
      {.recording = &kept, .go_on = goes_on}};
  const auto results = WhisperTranscription::step_all(*model_, turns);
  ASSERT_FALSE(results[0].ok());
  EXPECT_EQ(results[0].error().code, ErrorCode::kCancelled);
  ASSERT_TRUE(results[1].ok());
  EXPECT_EQ(*results[1], *exact);
  expect_equal(kept, alone);
}

INSTANTIATE_TEST_SUITE_P(All, WhisperBatch,
                         testing::Values(kernels::KernelChoice::kReference,
                                         kernels::KernelChoice::kAvx512,
                                         kernels::KernelChoice::kAvx2));

}  // namespace
}  // namespace pelton::models
