// The golden case of Whisper: spectrogram, encoder, logits, languages and greedy decoding of an
// independent float64 implementation (testdata/golden/audio/whisper).
#include "models/whisper.h"

#include <cmath>

#include <gtest/gtest.h>

#include "audio/log_mel.h"
#include "audio/wav_file.h"
#include "base/file.h"
#include "models/whisper_decoding.h"
#include "models/whisper_live.h"
#include "tensor/npy.h"

namespace pelton::models {
namespace {

const std::string kFolder = PELTON_SOURCE_DIR "/testdata/golden/audio/whisper";

std::vector<int> integers(const Json& json, std::string_view key) {
  std::vector<int> out;
  for (const Json& value : json.find(key)->as_array()) {
    out.push_back(static_cast<int>(value.as_integer()));
  }
  return out;
}

double relative_error(std::span<const float> got, std::span<const float> exact) {
  double mean = 0;
  double shift = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    mean += exact[i];
    shift += got[i];
  }
  mean /= static_cast<double>(exact.size());
  shift /= static_cast<double>(exact.size());
  double apart = 0;
  double length = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double e = exact[i] - mean;
    const double g = got[i] - shift;
    apart += (g - e) * (g - e);
    length += e * e;
  }
  return std::sqrt(apart / length);
}

struct Tolerance {
  double error;
  double logprob;
};

class GoldenWhisper : public testing::TestWithParam<kernels::KernelChoice> {
 protected:
  void SetUp() override {
    auto made = kernels::make_kernels(GetParam(), pool_);
    if (!made.ok()) GTEST_SKIP() << made.error().message;
    kernels_ = std::move(made).value();
    auto loaded = Whisper::load(kFolder, *kernels_);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    model_ = std::move(loaded).value();
    golden_ = Json::parse(*base::read_file(kFolder + "/tokens.json")).value();
  }

  // 1e-5 is asked of reference kernels, 2e-2 of fast ones; in float32 these come close.
  Tolerance tolerance() const {
    return GetParam() == kernels::KernelChoice::kReference ? Tolerance{1e-5, 1e-4}
                                                           : Tolerance{1e-4, 1e-3};
  }

  static std::vector<float> mel() {
    const std::string file = *base::read_file(kFolder + "/audio.wav");
    audio::Sound sound =
        audio::read_wav({reinterpret_cast<const uint8_t*>(file.data()), file.size()}, "audio.wav")
            .value();
    EXPECT_EQ(sound.sample_rate, 16'000);
    sound.samples.resize(480'000);  // 30 s
    return audio::LogMel(80).of(sound.samples);
  }

  WhisperWindow window() { return model_->window(model_->encode(mel())); }

  base::ThreadPool pool_{{.threads = 2, .pin = false}};
  std::unique_ptr<kernels::Kernels> kernels_;
  std::unique_ptr<Whisper> model_;
  Json golden_;
};

TEST(GoldenMel, FramesAreExact) {
  const Json golden = Json::parse(*base::read_file(kFolder + "/tokens.json")).value();
  const auto exact = tensor::read_npy(kFolder + "/mel_exact.npy").value();
  const std::string file = *base::read_file(kFolder + "/audio.wav");
  audio::Sound sound =
      audio::read_wav({reinterpret_cast<const uint8_t*>(file.data()), file.size()}, "a").value();
  sound.samples.resize(480'000);
  const std::vector<float> mel = audio::LogMel(80).of(sound.samples);
  ASSERT_EQ(mel.size(), 80U * 3000U);
  const std::vector<int> frames = integers(golden, "mel_frames");
  for (size_t i = 0; i < frames.size(); ++i) {
    for (size_t band = 0; band < 80; ++band) {
      EXPECT_NEAR(mel[band * 3000 + static_cast<size_t>(frames[i])], exact.f32()[i * 80 + band],
                  1e-5)
          << frames[i] << " " << band;
    }
  }
}

TEST_P(GoldenWhisper, EncoderIsExact) {
  const std::vector<float> states = model_->encode(mel());
  const auto exact = tensor::read_npy(kFolder + "/encoder_exact.npy").value();
  const std::vector<int> rows = integers(golden_, "encoder_rows");
  const auto size = static_cast<size_t>(exact.shape[1]);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto got = std::span(states).subspan(static_cast<size_t>(rows[i]) * size, size);
    EXPECT_LE(relative_error(got, exact.f32().subspan(i * size, size)), tolerance().error) << i;
  }
}

TEST_P(GoldenWhisper, LogitsAreExactFedWholeAndTokenByToken) {
  const auto exact = tensor::read_npy(kFolder + "/logits_exact.npy").value();
  const std::vector<int> tokens = integers(golden_, "tokens");
  const auto vocab = static_cast<size_t>(exact.shape[1]);
  WhisperWindow whole = window();
  const std::span<const float> all = model_->step(whole, tokens);
  const std::vector<float> kept(all.begin(), all.end());
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_LE(relative_error(std::span(kept).subspan(i * vocab, vocab),
                             exact.f32().subspan(i * vocab, vocab)),
              tolerance().error)
        << i;
  }
  whole.rewind(0);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::span<const float> row = model_->step(whole, {&tokens[i], 1});
    EXPECT_TRUE(std::equal(row.begin(), row.end(), kept.begin() + static_cast<long>(i * vocab)))
        << i;
  }
}

TEST_P(GoldenWhisper, LanguageIsDetected) {
  const auto exact = tensor::read_npy(kFolder + "/language_exact.npy").value();
  WhisperWindow one = window();
  const std::vector<double> shares = language_probabilities(*model_, one);
  EXPECT_EQ(one.length(), 0);
  ASSERT_EQ(shares.size(), exact.f32().size());
  for (size_t i = 0; i < shares.size(); ++i) EXPECT_NEAR(shares[i], exact.f32()[i], 1e-5);
  const auto best = std::ranges::max_element(shares) - shares.begin();
  EXPECT_EQ(best, golden_.integer("detected_language_index").value());
}

TEST_P(GoldenWhisper, GreedyTokensAreEqual) {
  WhisperWindow one = window();
  const std::vector<int> with = integers(golden_, "greedy_with_timestamps");
  const WhisperText timed = decode_window(
      *model_, one,
      {.language = model_->config().start + 1, .tokens_max = static_cast<int>(with.size())},
      [] { return true; });
  EXPECT_EQ(std::vector<int>(timed.tokens.begin(), timed.tokens.end()), with);
  EXPECT_NEAR(timed.average_logprob, golden_.number("avg_logprob").value(), tolerance().logprob);
  EXPECT_NEAR(timed.no_speech, golden_.number("no_speech_prob").value(), 1e-5);
  const std::vector<int> without = integers(golden_, "greedy_without_timestamps");
  const WhisperText plain = decode_window(*model_, one,
                                          {.language = model_->config().start + 1,
                                           .timestamps = false,
                                           .tokens_max = static_cast<int>(without.size())},
                                          [] { return true; });
  EXPECT_EQ(std::vector<int>(plain.tokens.begin(), plain.tokens.end()), without);
  EXPECT_NEAR(plain.average_logprob, golden_.number("avg_logprob_without").value(),
              tolerance().logprob);
}

// Windows of one sound and of another, at different lengths.
TEST_P(GoldenWhisper, SeveralWindowsInAStepAreOneAtATime) {
  const WhisperWindow one = window();
  std::vector<float> other_mel = mel();
  std::ranges::reverse(other_mel);
  const WhisperWindow other = model_->window(model_->encode(other_mel));
  const std::vector<int> tokens = integers(golden_, "tokens");
  std::vector<WhisperWindow> windows = {one, other, one, other};
  std::vector<WhisperWindow> alone = windows;
  const std::vector<size_t> lengths = {3, 17, 40, 1};
  for (size_t i = 0; i < windows.size(); ++i) {
    model_->step(windows[i], std::span(tokens).first(lengths[i]));
    model_->step(alone[i], std::span(tokens).first(lengths[i]));
  }
  std::vector<WhisperWindow*> all;
  for (WhisperWindow& each : windows) all.push_back(&each);
  for (const TokenId token : {5, 300}) {
    const std::vector<TokenId> next = {token, token + 1, token, token + 2};
    const std::span<const float> rows = model_->step_each(all, next);
    const std::vector<float> kept(rows.begin(), rows.end());
    const size_t vocab = kept.size() / all.size();
    for (size_t i = 0; i < all.size(); ++i) {
      const std::span<const float> row = model_->step(alone[i], {&next[i], 1});
      EXPECT_TRUE(std::ranges::equal(row, std::span(kept).subspan(i * vocab, vocab))) << i;
      EXPECT_EQ(all[i]->length(), alone[i].length());
    }
  }
}

// Without what is no text; with a beginning that stands, it goes on as it would have.
TEST_P(GoldenWhisper, ALiveWindowIsAWindow) {
  const std::string file = *base::read_file(kFolder + "/audio.wav");
  const audio::Sound sound =
      audio::read_wav({reinterpret_cast<const uint8_t*>(file.data()), file.size()}, "a").value();
  const auto goes_on = [] { return true; };
  const auto hear = [&](const LiveWindowTask& task) {
    const audio::LogMel front(80);
    auto heard = hear_live_window(
        *model_, sound.samples, task,
        [&](std::span<const float> samples) { return front.of(samples); }, {}, goes_on);
    EXPECT_TRUE(heard.ok());
    return heard.ok() ? *heard : LiveWindowText{};
  };
  WhisperWindow one = window();
  WhisperText plain = decode_window(
      *model_, one, {.language = model_->config().start + 1, .timestamps = false}, goes_on);
  std::erase_if(plain.tokens, [&](TokenId id) { return id >= model_->config().end_of_text; });
  const std::string language = model_->config().languages.front().first;
  LiveWindowTask task{.language = language, .previous = {}, .begun = {}};
  const LiveWindowText heard = hear(task);
  EXPECT_EQ(heard.tokens, plain.tokens);
  EXPECT_EQ(heard.language, language);

  task.language.clear();
  const LiveWindowText detected = hear(task);
  const auto best = golden_.integer("detected_language_index").value();
  EXPECT_EQ(detected.language, model_->config().languages[static_cast<size_t>(best)].first);

  // The first of the golden tokens are text, so what stands is what would have come.
  task.language = language;
  task.begun.assign(plain.tokens.begin(), plain.tokens.begin() + 3);
  EXPECT_EQ(hear(task).tokens, plain.tokens);
  task.begun[2] += 1;
  const LiveWindowText other = hear(task);
  ASSERT_GE(other.tokens.size(), 3U);
  EXPECT_TRUE(std::equal(task.begun.begin(), task.begun.end(), other.tokens.begin()));
  // However much was said before, there is room for what stands.
  task.begun.assign(223, 7);
  task.previous.assign(1000, 9);
  EXPECT_GE(hear(task).tokens.size(), 223U);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenWhisper,
                         testing::Values(kernels::KernelChoice::kReference,
                                         kernels::KernelChoice::kAvx512,
                                         kernels::KernelChoice::kAvx2));

TEST(WhisperMasks, TimestampsComeInPairs) {
  WhisperConfig config{.vocab_size = 20, .end_of_text = 10, .start = 11};
  config.no_timestamps = 13;
  config.timestamp_begin = 14;
  config.initial_timestamp_max = 2;
  const auto allowed = [&](std::vector<TokenId> generated) {
    std::vector<float> logits(20, 0.0f);
    logits[3] = logits[10] = 5.0f;  // so that no sum of timestamps wins
    mask_logits(logits, generated, config, {});
    std::vector<int> open;
    for (int i = 0; i < 20; ++i) {
      if (std::isfinite(logits[static_cast<size_t>(i)])) open.push_back(i);
    }
    return open;
  };
  EXPECT_EQ(allowed({}), (std::vector<int>{14, 15, 16}));
  EXPECT_EQ(allowed({14}), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(allowed({14, 3}).back(), 19);
  EXPECT_EQ(allowed({14, 3})[13], 15);                                              // never back
  EXPECT_EQ(allowed({14, 3, 16}), (std::vector<int>{10, 11, 12, 16, 17, 18, 19}));  // its twin
  EXPECT_EQ(allowed({14, 3, 16, 16}).back(), 12);                                   // a pair: text
}

TEST(WhisperConfigFile, WhatIsWrongIsNamed) {
  const Json config = Json::parse(*base::read_file(kFolder + "/config.json")).value();
  const Json generation =
      Json::parse(*base::read_file(kFolder + "/generation_config.json")).value();
  ASSERT_TRUE(parse_whisper_config(config, generation, "m").ok());
  for (const auto& [key, value] : {std::pair("d_model", "0"),
                                   {"model_type", "\"bert\""},
                                   {"activation_function", "\"relu\""},
                                   {"encoder_attention_heads", "7"},
                                   {"vocab_size", "\"many\""}}) {
    Json other = config;
    other.set(key, Json::parse(value).value());
    const auto parsed = parse_whisper_config(other, generation, "m");
    EXPECT_FALSE(parsed.ok()) << key;
  }
  for (const char* key : {"no_timestamps_token_id", "task_to_id", "lang_to_id", "eos_token_id"}) {
    Json other = generation;
    other.set(key, nullptr);
    other.set("is_multilingual", true);
    const auto parsed = parse_whisper_config(config, other, "m");
    ASSERT_FALSE(parsed.ok()) << key;
    EXPECT_NE(parsed.error().message.find(key), std::string::npos) << parsed.error().message;
  }
}

}  // namespace
}  // namespace pelton::models
