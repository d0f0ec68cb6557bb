// For tests: a server whose model says the codes that a script has it say, and whose vocoder's
// sound shows which codes it was made of.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/server_fixture.h"
#include "server/speech_use.h"
#include "speech/sound_bytes.h"
#include "speech/test_tokenizer.h"

namespace pelton::server {

inline constexpr int kFrameSamples = 4;

// A kept frame: the first code of its four frames, of 64.
class ShownCodes final : public speech::Vocoder {
 public:
  int sample_rate() const override { return 24'000; }
  int frame_samples() const override { return kFrameSamples; }
  int threads() const override { return 1; }
  std::vector<float> kept_frame(const speech::AudioWindow& window, int) override {
    std::vector<float> samples;
    for (size_t frame = 0; frame < 4; ++frame) {
      samples.push_back(static_cast<float>(window[frame * speech::kFrameTokens]) / 64.0f);
    }
    return samples;
  }
};

// "[" before all, "|" before each further piece, "]" behind the last.
class ShownPieces final : public speech::SoundEncoder {
 public:
  explicit ShownPieces(bool is_whole) : is_whole_(is_whole) {}
  void push(std::string_view pcm, std::string& out) override {
    held_ += (pieces_++ == 0 ? "[" : "|") + std::string(pcm);
    if (!is_whole_) out += std::exchange(held_, {});
  }
  void finish(std::string& out) override { out += held_ + "]"; }

 private:
  const bool is_whole_;
  int pieces_ = 0;
  std::string held_;
};

inline ServerFixture::Options speech_options() {
  ServerFixture::Options options;
  options.tokenizer = &speech::test_tokenizer;
  options.model = [](ServedModel& model) {
    auto tokens = speech::AudioTokens::of(model.tokenizer, speech::kTestBookSize, model.vocab_size);
    ASSERT_TRUE(tokens.ok()) << tokens.error().message;
    model.speech =
        std::make_shared<SpeechUse>(*std::move(tokens), std::vector<std::string>{"tara", "leo"},
                                    std::make_unique<ShownCodes>());
    model.speech->compressed = {.formats = {"flac"},
                                .make = [](std::string_view, const speech::EncoderOptions& how) {
                                  EXPECT_EQ(how.sample_rate, 24'000);
                                  return std::make_unique<ShownPieces>(how.is_whole);
                                }};
  };
  return options;
}

inline std::string frames(const std::vector<int>& codes) {
  std::string text;
  for (const int code : codes) text += speech::frame_text(code);
  return text;
}

// What the windows of these frames sound like.
inline std::string sound(const std::vector<int>& codes) {
  std::vector<float> samples;
  for (size_t i = 0; i + 3 < codes.size(); ++i) {
    for (size_t j = 0; j < 4; ++j) samples.push_back(static_cast<float>(codes[i + j]) / 64.0f);
  }
  std::string pcm;
  speech::append_pcm(samples, pcm);
  return pcm;
}

inline std::string script(const std::string& says) {
  return fmt::format(R"({{"context":4096,"rules":[{{"when":"","then":"{}<custom_token_2>"}}]}})",
                     says);
}

}  // namespace pelton::server
