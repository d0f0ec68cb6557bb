#include "bench/transcript_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/multipart_form.h"

namespace pelton::bench {
namespace {

using testing::HasSubstr;

net::HttpHeaders of_type(std::string type) {
  net::HttpHeaders headers;
  headers.add("Content-Type", std::move(type));
  return headers;
}

TEST(SoundForm, IsReadAsItIsWritten) {
  const std::string file = "RIFF pelton-sound\r\n--pelton-sound-x\r\n";
  const SoundForm form = sound_form({{"model", "w"}, {"language", "de"}}, file);
  const auto parts = net::parse_form(form.content_type, form.body);
  ASSERT_TRUE(parts.ok()) << parts.error().message;
  ASSERT_EQ(parts->size(), 3u);
  EXPECT_EQ((*parts)[0].name, "model");
  EXPECT_EQ((*parts)[1].content, "de");
  EXPECT_EQ((*parts)[2].content, file);
  EXPECT_TRUE((*parts)[2].file_name.has_value());
}

TEST(TranscriptAnswer, JsonIsOneText) {
  TranscriptAnswer answer;
  answer.head(200, of_type("application/json"));
  answer.piece(R"({"text":"a wh)", 0.1);
  answer.piece(R"(eel"})", 0.2);
  answer.end({}, 0.3);
  EXPECT_EQ(answer.failure(), "");
  EXPECT_EQ(answer.text(), "a wheel");
  EXPECT_DOUBLE_EQ(answer.first_text_s(), 0.3);
}

TEST(TranscriptAnswer, AStreamHasFirstWords) {
  TranscriptAnswer answer;
  answer.head(200, of_type("text/event-stream"));
  answer.piece("data: {\"type\":\"transcript.text.delta\",\"delta\":\"a\"}\n", 0.1);
  answer.piece("\ndata: {\"type\":\"transcript.text.delta\",\"delta\":\" wheel\"}\n\n", 0.2);
  answer.piece("data: {\"type\":\"transcript.text.done\",\"text\":\"a wheel\"}\n\n", 0.4);
  answer.piece("data: [DONE]\n\n", 0.4);
  answer.end({}, 0.5);
  EXPECT_EQ(answer.failure(), "");
  EXPECT_EQ(answer.text(), "a wheel");
  EXPECT_DOUBLE_EQ(answer.first_text_s(), 0.2);
  EXPECT_DOUBLE_EQ(answer.whole_s(), 0.5);
}

TEST(TranscriptAnswer, SaysWhyItIsNone) {
  TranscriptAnswer refused;
  refused.head(429, of_type("application/json"));
  refused.piece("{}", 0.1);
  refused.end({}, 0.1);
  EXPECT_EQ(refused.failure(), "HTTP 429: {}");
  TranscriptAnswer cut;
  cut.head(200, of_type("text/event-stream"));
  cut.piece("data: {\"error\":{\"message\":\"gone\"}}\n\n", 0.1);
  cut.end({}, 0.1);
  EXPECT_THAT(cut.failure(), HasSubstr("gone"));
  TranscriptAnswer other;
  other.head(200, of_type("text/plain"));
  other.piece("hello", 0.1);
  other.end({}, 0.1);
  EXPECT_EQ(other.failure(), "an answer without 'text'");
}

}  // namespace
}  // namespace pelton::bench
