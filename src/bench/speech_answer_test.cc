#include "bench/speech_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::bench {
namespace {

using testing::HasSubstr;

// 24 kHz, one channel, 16 bits: 48000 bytes a second.
std::string header() {
  std::string out("RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\1\0\1\0", 24);
  out += std::string("\xc0\x5d\0\0\x80\xbb\0\0\2\0\x10\0", 12);
  return out + "data\xff\xff\xff\xff";
}

std::string sound(double seconds) {
  return std::string(static_cast<size_t>(seconds * 48'000.0), 'a');
}

TEST(SpeechAnswer, TimesItsSound) {
  SpeechAnswer answer(0.0);
  answer.head(200, {});
  const std::string begin = header();
  ASSERT_EQ(begin.size(), 44u);
  answer.piece(begin.substr(0, 30), 0.1);
  answer.piece(begin.substr(30), 0.2);
  answer.piece(sound(0.1), 0.5);
  answer.piece(sound(0.2), 0.55);
  answer.end({}, 0.6);
  EXPECT_EQ(answer.failure(), "");
  EXPECT_DOUBLE_EQ(answer.first_sound_s(), 0.5);
  EXPECT_DOUBLE_EQ(answer.whole_s(), 0.6);
  EXPECT_NEAR(answer.player().sound_s(), 0.3, 1e-9);
  EXPECT_TRUE(answer.keeps_real_time());
}

TEST(SpeechAnswer, SoundThatIsLateKeepsNoRealTime) {
  SpeechAnswer answer(0.0);
  answer.head(200, {});
  answer.piece(header() + sound(0.1), 0.5);
  answer.piece(sound(0.1), 0.7);
  answer.end({}, 0.7);
  EXPECT_EQ(answer.failure(), "");
  EXPECT_EQ(answer.player().underruns(), 1);
  EXPECT_FALSE(answer.keeps_real_time());
}

TEST(SpeechAnswer, SaysWhyItIsNone) {
  SpeechAnswer refused(0.0);
  refused.head(400, {});
  refused.piece(R"({"error":"voice"})", 0.1);
  refused.end({}, 0.1);
  EXPECT_EQ(refused.failure(), R"(HTTP 400: {"error":"voice"})");
  SpeechAnswer other(0.0);
  other.head(200, {});
  other.piece(std::string(100, 'x'), 0.1);
  other.end({}, 0.1);
  EXPECT_THAT(other.failure(), HasSubstr("no WAV"));
  SpeechAnswer silent(0.0);
  silent.head(200, {});
  silent.piece(header(), 0.1);
  silent.end({}, 0.1);
  EXPECT_EQ(silent.failure(), "an answer without sound");
  SpeechAnswer broken(0.0);
  broken.head(200, {});
  broken.piece(header() + sound(0.1), 0.1);
  broken.end(Error{ErrorCode::kIo, "broke off", ""}, 0.1);
  EXPECT_EQ(broken.failure(), "broke off");
  EXPECT_FALSE(broken.keeps_real_time());
}

}  // namespace
}  // namespace pelton::bench
