// A line of a batch's file is foreign bytes: it is a request or an error with a code, and what is
// made of a request is JSON again.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

#include "api/batch_request.h"
#include "base/check.h"
#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parsed = api::parse_batch_line(text, "");
  if (const auto* const error = std::get_if<api::BatchLineError>(&parsed)) {
    CHECK(!error->code.empty() && !error->message.empty());
    return 0;
  }
  const auto& line = std::get<api::BatchLine>(parsed);
  CHECK(!line.custom_id.empty() && api::is_batch_endpoint(line.url));
  const Result<Json> body = Json::parse(line.body);
  CHECK(body.ok() && body->integer("priority") == api::kBatchPriority);
  const std::string answer = api::batch_answer_line({.id = "b",
                                                     .custom_id = line.custom_id,
                                                     .status = 200,
                                                     .request_id = "r",
                                                     .body = line.body});
  CHECK(answer.find('\n') == answer.size() - 1);
  CHECK(Json::parse(answer).ok());
  return 0;
}
