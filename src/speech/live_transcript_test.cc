// What is said while sound comes: items, windows, and text that is never taken back. The model is
// scripted: its tokens are characters.
#include "speech/live_transcript.h"

#include <cmath>
#include <string>

#include <gtest/gtest.h>

namespace pelton::speech {
namespace {

using What = LiveTranscript::Event::What;
constexpr size_t kRate = LiveTranscript::kRate;

std::vector<TokenId> tokens_of(std::string_view text) {
  std::vector<TokenId> tokens;
  for (const char c : text) tokens.push_back(static_cast<uint8_t>(c));
  return tokens;
}

// Bytes, where what is no whole character is U+FFFD, as a tokenizer has it.
std::string text_of(std::span<const TokenId> tokens) {
  std::string text;
  for (const TokenId token : tokens) text += static_cast<char>(token);
  if (!text.empty() && static_cast<uint8_t>(text.back()) == 0xC3) {
    text.replace(text.size() - 1, 1, "\xEF\xBF\xBD");
  }
  return text;
}

std::vector<float> sound(double seconds, float value = 0.1F) {
  return std::vector<float>(static_cast<size_t>(seconds * kRate), value);
}

LiveText said(std::string_view text) {
  return {.tokens = tokens_of(text), .language = "en"};
}

class Live {
 public:
  explicit Live(LiveTranscript::Options options = {}) : transcript(std::move(options), text_of) {}

  void push(std::span<const float> samples) {
    auto events = transcript.push(samples);
    ASSERT_TRUE(events.ok()) << events.error().message;
    note(*events);
  }
  void commit() {
    auto events = transcript.commit();
    ASSERT_TRUE(events.ok()) << events.error().message;
    note(*events);
  }
  // The next window is heard so; gives it.
  LiveWindow hear(std::string_view text) {
    auto window = transcript.next_window();
    EXPECT_TRUE(window.has_value()) << text;
    if (!window) return {};
    note(transcript.heard(said(text)));
    return *std::move(window);
  }
  void note(const LiveTranscript::Events& events) {
    for (const auto& event : events) {
      if (event.what == What::kDelta) deltas += event.text;
      if (event.what == What::kCompleted) completed.push_back(event.text);
      all.push_back(event);
    }
  }

  LiveTranscript transcript;
  LiveTranscript::Events all;
  std::string deltas;
  std::vector<std::string> completed;
};

TEST(LiveTranscript, WhatTwoPassesAgreeOnStands) {
  Live live;
  live.push(sound(0.4));
  EXPECT_FALSE(live.transcript.next_window().has_value());
  live.push(sound(0.2));
  EXPECT_EQ(live.hear(" Hello word").begun.size(), 0U);
  EXPECT_EQ(live.deltas, "");
  live.push(sound(0.4));
  EXPECT_FALSE(live.transcript.next_window().has_value());  // half a second after the last pass
  live.push(sound(0.1));
  live.hear(" Hello world, it");
  EXPECT_EQ(live.deltas, "Hello wor");
  live.push(sound(0.5));
  const LiveWindow third = live.hear(" Hello world, is");
  EXPECT_EQ(text_of(third.begun), " Hello wor");
  EXPECT_FALSE(third.is_last);
  EXPECT_EQ(live.deltas, "Hello world, i");
  live.commit();
  EXPECT_FALSE(live.transcript.is_settled());
  const LiveWindow last = live.hear(" Hello world, is it?");
  EXPECT_TRUE(last.is_last);
  EXPECT_EQ(last.samples.size(), static_cast<size_t>(1.6 * kRate));
  EXPECT_EQ(live.completed, std::vector<std::string>{"Hello world, is it?"});
  EXPECT_EQ(live.deltas, "Hello world, is it?");
  EXPECT_TRUE(live.transcript.is_settled());
  EXPECT_NEAR(live.all.back().seconds, 1.6, 1e-9);
}

TEST(LiveTranscript, TextStandsInWholeCharactersAndNotWhereItRepeatsItself) {
  Live live;
  live.push(sound(0.5));
  live.hear("caf\xC3\xA9");
  live.push(sound(0.5));
  live.hear("caf\xC3\xA8");  // the first byte of both is the same
  EXPECT_EQ(live.deltas, "caf");
  live.push(sound(0.5));
  ASSERT_TRUE(live.transcript.next_window().has_value());
  LiveText again = said("caf\xC3\xA8 caf\xC3\xA8");
  again.is_repetitive = true;
  live.note(live.transcript.heard(again));
  EXPECT_EQ(live.deltas, "caf");
  live.push(sound(0.5));
  live.hear("caf\xC3\xA8 au lait");
  EXPECT_EQ(live.deltas, "caf\xC3\xA8");
}

TEST(LiveTranscript, AFullWindowIsCutWhereItIsQuietest) {
  std::vector<float> long_sound = sound(31);
  const size_t quiet = static_cast<size_t>(27.5 * kRate);
  std::fill_n(long_sound.begin() + static_cast<std::ptrdiff_t>(quiet), kRate / 2, 0.0F);
  const size_t cut = quiet_cut(long_sound);
  EXPECT_GE(cut, quiet);
  EXPECT_LE(cut, quiet + kRate / 2);
  EXPECT_LE(quiet_cut(sound(31)), LiveTranscript::kWindow);

  Live live({.language = "de", .prompt = "Names: Pelton", .detector = {}});
  live.push(long_sound);
  live.commit();
  const LiveWindow first = live.hear(" One two.");
  EXPECT_TRUE(first.is_last);
  EXPECT_EQ(first.samples.size(), cut);
  EXPECT_EQ(first.language, "de");
  EXPECT_EQ(first.prompt, "Names: Pelton");
  EXPECT_TRUE(live.completed.empty());
  const LiveWindow second = live.hear(" Three.");
  EXPECT_EQ(second.samples.size(), long_sound.size() - cut);
  EXPECT_EQ(text_of(second.previous), " One two.");
  EXPECT_TRUE(second.begun.empty());
  EXPECT_EQ(live.completed, std::vector<std::string>{"One two. Three."});
  EXPECT_EQ(live.deltas, "One two. Three.");
}

TEST(LiveTranscript, ItemsAreHeardInOrder) {
  Live live;
  live.push(sound(1));
  live.commit();
  live.push(sound(2));
  live.commit();
  live.push(sound(3));
  EXPECT_EQ(live.hear("a").samples.size(), kRate);
  EXPECT_EQ(live.hear("b").samples.size(), 2 * kRate);
  EXPECT_EQ(live.completed, (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(live.hear("c").is_last);
}

TEST(LiveTranscript, WhatIsClearedHasNoMoreText) {
  Live live;
  live.push(sound(1));
  ASSERT_TRUE(live.transcript.next_window().has_value());
  live.transcript.clear();
  live.push(sound(1, 0.2F));
  EXPECT_FALSE(live.transcript.next_window().has_value());  // one at a time
  live.note(live.transcript.heard(said("of the cleared one")));
  EXPECT_EQ(live.hear("of the next one").samples[0], 0.2F);
  live.commit();
  live.hear("x");
  EXPECT_EQ(live.completed, std::vector<std::string>{"x"});
  ASSERT_EQ(live.all.front().what, What::kCommitted);
  EXPECT_EQ(live.all.front().item, 1);
}

TEST(LiveTranscript, BoundsAreSaid) {
  Live live;
  auto refused = live.transcript.commit();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  live.push(sound(0.05));
  refused = live.transcript.commit();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("50 ms"), std::string::npos) << refused.error().message;
  refused = live.transcript.push(sound(60));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOverloaded);
  refused = live.transcript.push(sound(62.5));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("62.5 s of sound in one message"), std::string::npos);
  EXPECT_NE(refused.error().message.find("at most 60 s"), std::string::npos);
  live.push(sound(59));
  EXPECT_TRUE(live.hear("x").is_last);  // a window is over: there is room again
  EXPECT_TRUE(live.transcript.push(sound(30)).ok());
}

TEST(LiveTranscript, AnErrorEndsTheItemAlone) {
  Live live;
  live.push(sound(1));
  live.commit();
  ASSERT_TRUE(live.transcript.next_window().has_value());
  live.note(live.transcript.heard(Error{ErrorCode::kInternal, "broken", ""}));
  ASSERT_EQ(live.all.back().what, What::kFailed);
  EXPECT_EQ(live.all.back().error->message, "broken");
  live.push(sound(1));
  live.commit();
  live.hear("y");
  EXPECT_EQ(live.completed, std::vector<std::string>{"y"});
}

TEST(LiveTranscript, SpeechBeginsAndEndsItems) {
  Live live({.language = {}, .prompt = {}, .detector = SpeechDetector::Options{}});
  live.push(sound(1, 0.0F));
  EXPECT_FALSE(live.transcript.is_open());
  for (int i = 0; i < 100; ++i) live.push(std::vector<float>(160, 0.1F));  // a second, in pieces
  ASSERT_EQ(live.all.size(), 1U);
  EXPECT_EQ(live.all[0].what, What::kBegins);
  EXPECT_EQ(live.all[0].ms, 700);  // with 300 ms before it
  live.push(sound(0.4, 0.0F));
  EXPECT_EQ(live.all.size(), 1U);  // a pause
  live.push(sound(0.2, 0.1F));
  live.push(sound(0.6, 0.0F));
  ASSERT_EQ(live.all.size(), 3U);
  EXPECT_EQ(live.all[1].what, What::kEnds);
  EXPECT_EQ(live.all[1].ms, 3100);
  EXPECT_EQ(live.all[2].what, What::kCommitted);
  const LiveWindow window = live.hear("once");
  EXPECT_TRUE(window.is_last);
  EXPECT_EQ(window.samples.size(), static_cast<size_t>(2.4 * kRate));
  EXPECT_EQ(live.completed, std::vector<std::string>{"once"});
  live.push(sound(2, 0.0F));
  EXPECT_FALSE(live.transcript.next_window().has_value());
}

TEST(LiveTranscript, DetectionCanBeTurnedOffAmidSpeech) {
  Live live({.language = {}, .prompt = {}, .detector = SpeechDetector::Options{}});
  live.push(sound(1.01));
  live.transcript.set_options({});
  live.push(sound(1, 0.0F));
  live.commit();
  const LiveWindow window = live.hear("all");
  EXPECT_EQ(window.samples.size(), sound(1.01).size() + kRate);
}

TEST(SpeechDetector, OneLoudFrameIsNoSpeech) {
  SpeechDetector detector({.threshold = 0.5, .silence_duration_ms = 40}, false);
  const std::vector<float> loud(SpeechDetector::kFrame, 0.011F);  // -39 dB
  const std::vector<float> quiet(SpeechDetector::kFrame, 0.009F);
  using Change = SpeechDetector::Change;
  EXPECT_EQ(detector.push(loud), Change::kNone);
  EXPECT_EQ(detector.push(loud), Change::kNone);
  EXPECT_EQ(detector.push(quiet), Change::kNone);
  EXPECT_EQ(detector.push(loud), Change::kNone);
  EXPECT_EQ(detector.push(loud), Change::kNone);
  EXPECT_EQ(detector.push(loud), Change::kBegins);
  EXPECT_EQ(detector.push(quiet), Change::kNone);
  EXPECT_EQ(detector.push(loud), Change::kNone);
  EXPECT_EQ(detector.push(quiet), Change::kNone);
  EXPECT_EQ(detector.push(quiet), Change::kEnds);
  EXPECT_FALSE(detector.speaks());
}

}  // namespace
}  // namespace pelton::speech
