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
  EXPECT_EQ(transcription_model_asked(form({})).value(), "w");
  EXPECT_EQ(transcription_model_asked({}).value(), "");
  const auto twice = transcription_model_asked(form({{.name = "model", .content = "v"}}));
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.error().field, "model");
  EXPECT_EQ(twice.error().message, "'model' is given twice");
  const std::string long_name(513, 'm');
  const Form named = {{.name = "model", .content = long_name}};
  EXPECT_EQ(transcription_model_asked(named).error().field, "model");
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
      {{{.name = "timeout", .content = "0"}}, "timeout"},
      {{{.name = "timeout", .content = "-1"}}, "timeout"},
      {{{.name = "timeout", .content = "-0.0"}}, "timeout"},
      {{{.name = "timeout", .content = "86401"}}, "timeout"},
      {{{.name = "timeout", .content = "soon"}}, "timeout"},
      {{{.name = "chunking_strategy", .content = "x"}}, "chunking_strategy"},
      {{{.name = "chunking_strategy", .content = ""}}, "chunking_strategy"},
      {{{.name = "chunking_strategy", .content = R"("auto")"}}, "chunking_strategy"},
      {{{.name = "chunking_strategy", .content = "{}"}}, "chunking_strategy"},
      {{{.name = "chunking_strategy", .content = R"({"type":"semantic"})"}},
       "chunking_strategy.type"},
      {{{.name = "chunking_strategy", .content = R"({"type":"server_vad","threshold":2})"}},
       "chunking_strategy.threshold"},
      {{{.name = "chunking_strategy", .content = R"({"type":"server_vad","x":2})"}},
       "chunking_strategy.x"},
      {{{.name = "chunking_strategy[type]", .content = "x"}}, "chunking_strategy.type"},
      {{{.name = "chunking_strategy[prefix_padding_ms]", .content = "-3"}},
       "chunking_strategy.prefix_padding_ms"},
      {{{.name = "chunking_strategy[silence_duration_ms]", .content = "1.5"}},
       "chunking_strategy.silence_duration_ms"},
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

TEST(TranscriptionRequest, WhereAFileIsToBeCutIsReadAndNotDone) {
  for (const Form& more :
       std::vector<Form>{{{.name = "chunking_strategy",
       .content = R"({"type":"server_vad","threshold":0.5,"prefix_padding_ms":300})"}},
                         {{.name = "chunking_strategy[type]", .content = "server_vad"},
                          {.name = "chunking_strategy[threshold]", .content = "0.5"},
                          {.name = "chunking_strategy[silence_duration_ms]", .content = "200"}}}) {
    const auto made = parse_transcription_request(form(more), {.file_bytes_max = 4});
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(made->warnings, std::vector<std::string>{
                                  "chunking_strategy ignored: a file is heard in windows of 30 s"});
  }
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
