#include "api/transcription_request.h"

#include <gtest/gtest.h>

namespace pelton::api {
namespace {

using Form = std::vector<FormField>;

Form form(Form more) {
  Form all = {{.name = "file", .content = "RIFF", .is_file = true},
              {.name = "model", .content = "w"}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(TranscriptionRequest, ReadsWhatOpenAisClientsSend) {
  const auto request =
      parse_transcription_request(form({{.name = "language", .content = "de"},
                                        {.name = "prompt", .content = "Pelton"},
                                        {.name = "response_format", .content = "verbose_json"},
                                        {.name = "temperature", .content = "0.25"},
                                        {.name = "beam_size", .content = "5"},
                                        {.name = "best_of", .content = "3"},
                                        {.name = "timestamp_granularities[]", .content = "word"},
                                        {.name = "timestamp_granularities[]", .content = "segment"},
                                        {.name = "chunking_strategy", .content = "auto"}}),
                                  {.file_bytes_max = 4});
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->file, "RIFF");
  EXPECT_EQ(request->model, "w");
  EXPECT_EQ(request->language, "de");
  EXPECT_EQ(request->prompt, "Pelton");
  EXPECT_EQ(request->format, TranscriptionRequest::Format::kVerboseJson);
  EXPECT_EQ(request->temperature, 0.25);
  EXPECT_EQ(request->beam_size, 5);
  EXPECT_EQ(request->best_of, 3);
  EXPECT_TRUE(request->has_words && request->has_segments);
  EXPECT_TRUE(request->warnings.empty());
  EXPECT_EQ(transcription_model_asked(form({})), "w");
  EXPECT_EQ(transcription_model_asked(form({{.name = "model", .content = "v"}})), "");
}

TEST(TranscriptionRequest, WhatIsWrongIsNamed) {
  struct Row {
    Form more;
    std::string_view field;
  };
  const std::string long_prompt(20'000, 'a');
  const Row rows[] = {
      {{{.name = "model", .content = "w"}}, "model"},
      {{{.name = "response_format", .content = "xml"}}, "response_format"},
      {{{.name = "temperature", .content = "1.5"}}, "temperature"},
      {{{.name = "temperature", .content = "warm"}}, "temperature"},
      {{{.name = "temperature", .content = "nan"}}, "temperature"},
      {{{.name = "beam_size", .content = "0"}}, "beam_size"},
      {{{.name = "beam_size", .content = "2.5"}}, "beam_size"},
      {{{.name = "best_of", .content = "17"}}, "best_of"},
      {{{.name = "prompt", .content = long_prompt}}, "prompt"},
      {{{.name = "stream", .content = "yes"}}, "stream"},
      {{{.name = "stream", .content = "true"}, {.name = "response_format", .content = "srt"}},
       "stream"},
      {{{.name = "timestamp_granularities[]", .content = "word"}}, "timestamp_granularities"},
      {{{.name = "timestamp_granularities[]", .content = "day"}}, "timestamp_granularities"},
      {{{.name = "include[]", .content = "logprobs"}}, "include"},
  };
  for (const Row& row : rows) {
    const auto request = parse_transcription_request(form(row.more), {.file_bytes_max = 4});
    ASSERT_FALSE(request.ok()) << row.field;
    EXPECT_EQ(request.error().field, row.field);
  }
  EXPECT_EQ(parse_transcription_request(form({}), {.file_bytes_max = 3}).error().field, "file");
  EXPECT_EQ(parse_transcription_request({}, {.file_bytes_max = 3}).error().message,
            "'file' is missing");
  const Form text = {{.name = "file", .content = "RIFF"}};
  EXPECT_EQ(parse_transcription_request(text, {.file_bytes_max = 4}).error().field, "file");
}

TEST(TranscriptionRequest, UnknownFieldsWarnOrAreRefused) {
  const Form all = form({{.name = "hotwords", .content = "x"}});
  const auto warned = parse_transcription_request(all, {.file_bytes_max = 4});
  ASSERT_TRUE(warned.ok());
  EXPECT_EQ(warned->warnings.size(), 1u);
  const auto refused = parse_transcription_request(
      all, {.file_bytes_max = 4, .unknown_fields = UnknownFields::kRefuse});
  EXPECT_EQ(refused.error().field, "hotwords");
}

}  // namespace
}  // namespace pelton::api
