#include "api/batch_request.h"

#include <string>

#include <gtest/gtest.h>

#include "base/json.h"

namespace pelton::api {
namespace {

std::string line_of(std::string_view members) {
  return std::string("{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",")
      .append(members)
      .append("}");
}

BatchLineError refused(std::string_view line, std::string_view endpoint = "/v1/chat/completions") {
  auto parsed = parse_batch_line(line, endpoint);
  auto* const error = std::get_if<BatchLineError>(&parsed);
  return error == nullptr ? BatchLineError{.code = "accepted"} : *error;
}

TEST(BatchLine, GivesTheRequestAtTheLowestPriority) {
  const auto parsed = parse_batch_line(
      line_of(R"("body":{"model":"m","priority":-5,"seed":12345678901234567,"timeout":3})"), "");
  const auto* const line = std::get_if<BatchLine>(&parsed);
  ASSERT_NE(line, nullptr);
  EXPECT_EQ(line->custom_id, "a");
  EXPECT_EQ(line->url, "/v1/chat/completions");
  EXPECT_EQ(line->body, R"({"model":"m","priority":1000,"seed":12345678901234567,"timeout":3})");
  EXPECT_TRUE(line->has_timeout);
}

// As files of PowerShell and Excel begin.
TEST(BatchLine, MayBeginWithAByteOrderMark) {
  const std::string mark = "\xEF\xBB\xBF";
  const auto parsed = parse_batch_line(mark + line_of(R"("body":{"model":"m"})"), "");
  const auto* const line = std::get_if<BatchLine>(&parsed);
  ASSERT_NE(line, nullptr);
  EXPECT_EQ(line->custom_id, "a");
  EXPECT_EQ(refused(mark + mark + line_of(R"("body":{})")).code, "invalid_json_line");
  EXPECT_EQ(refused("\xEF\xBB" + line_of(R"("body":{})")).code, "invalid_json_line");
}

TEST(BatchLine, SaysWhatIsWrongByOpenAisCodes) {
  EXPECT_EQ(refused("{").code, "invalid_json_line");
  EXPECT_EQ(refused("[]").code, "invalid_json_line");
  EXPECT_EQ(refused(R"({"custom_id":1})").code, "missing_required_parameter");
  EXPECT_EQ(refused(R"({"custom_id":""})").param, "custom_id");
  EXPECT_EQ(refused(R"({"custom_id":")" + std::string(513, 'a') + "\"}").param, "custom_id");
  EXPECT_EQ(refused(R"({"custom_id":"a","method":"GET"})").code, "invalid_method");
  EXPECT_EQ(refused(R"({"custom_id":"a","method":"POST","url":"/admin"})").code, "invalid_url");
  EXPECT_EQ(refused(line_of(R"("body":{})"), "/v1/embeddings").code, "mismatched_endpoint");
  EXPECT_EQ(refused(line_of(R"("body":"{}")")).param, "body");
  EXPECT_EQ(refused(line_of(R"("body":{"stream":true})")).param, "body.stream");
  EXPECT_EQ(refused(line_of(R"("body":{"background":true})")).param, "body.background");
  EXPECT_EQ(refused(line_of(R"("body":{},"headers":{})")).code, "unknown_parameter");
  EXPECT_EQ(refused(line_of(R"("body":{"stream":false})")).code, "accepted");
}

TEST(BatchLine, AnswersAndOmissionsAreOneLineEach) {
  const std::string answer = batch_answer_line({.id = "batch_req_1",
                                                .custom_id = "a\n",
                                                .status = 400,
                                                .request_id = "req_1",
                                                .body = "{\"x\":\n1}"});
  EXPECT_EQ(answer,
            "{\"id\":\"batch_req_1\",\"custom_id\":\"a\\n\",\"response\":{\"status_code\":400,"
            "\"request_id\":\"req_1\",\"body\":{\"x\":1}},\"error\":null}\n");
  const std::string omission = batch_omission_line(
      {.id = "batch_req_1", .custom_id = "a", .code = "batch_expired", .message = "late"});
  EXPECT_EQ(omission,
            "{\"id\":\"batch_req_1\",\"custom_id\":\"a\",\"response\":null,\"error\":{\"code\":"
            "\"batch_expired\",\"message\":\"late\"}}\n");
  EXPECT_EQ(error_code_of(R"({"error":{"code":"overloaded"}})"), "overloaded");
  EXPECT_EQ(error_code_of("none"), "");
}

TEST(BatchRequest, IsReadWithItsBounds) {
  const auto request = parse_batch_request(
      R"({"input_file_id":"file-1","endpoint":"/v1/embeddings","completion_window":"24h",
          "metadata":{"a":"b"},"output_expires_after":{"anchor":"created_at","seconds":3600}})",
      {});
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->window_s, 86'400);
  EXPECT_EQ(request->metadata, R"({"a":"b"})");
  EXPECT_EQ(request->output_age_s, 3600);
  const auto field_of = [](std::string_view extra) {
    std::string body =
        R"({"input_file_id":"file-1","endpoint":"/v1/embeddings","completion_window":"24h")";
    const auto one = parse_batch_request(body.append(extra) + "}", {});
    return one.ok() ? std::string("accepted") : one.error().field;
  };
  EXPECT_EQ(field_of(""), "accepted");
  EXPECT_EQ(field_of(R"(,"metadata":{"a":1})"), "metadata");
  EXPECT_EQ(field_of(R"(,"speed":"high")"), "speed");
  EXPECT_EQ(field_of(R"(,"output_expires_after":{"anchor":"created_at","seconds":5})"),
            "output_expires_after.seconds");
  const auto missing = [](std::string_view body) { return parse_batch_request(body, {}).error(); };
  EXPECT_EQ(missing("{}").field, "input_file_id");
  EXPECT_EQ(missing(R"({"input_file_id":"f","endpoint":"/v1/none"})").field, "endpoint");
  EXPECT_EQ(
      missing(R"({"input_file_id":"f","endpoint":"/v1/score","completion_window":"1y"})").field,
      "completion_window");
}

}  // namespace
}  // namespace pelton::api
