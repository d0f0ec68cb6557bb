// Bodies of both endpoints: any bytes give a request or a complaint that can be sent.
#include <cstdint>
#include <string_view>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/error.h"
#include "base/check.h"

namespace {

template <typename T>
void check(const pelton::Result<T>& request) {
  if (request.ok()) {
    CHECK(request->generation.min_tokens >= 0);
    return;
  }
  const pelton::api::ApiError error = pelton::api::api_error(request.error());
  CHECK(error.status == 400 && !error.message.empty());
  CHECK(pelton::Json::parse(pelton::api::error_body(error)).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const pelton::api::RequestLimits limits{.vocab_size = 1000};
  check(pelton::api::parse_chat_request(body, limits));
  check(pelton::api::parse_completion_request(body, limits));
  return 0;
}
