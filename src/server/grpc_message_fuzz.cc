// Messages of the gRPC listener: any bytes that protobuf takes become a body that is JSON, or a
// complaint; and what the parsers make of it is a request or a complaint.
#include <cstdint>
#include <string>

#include <google/protobuf/stubs/logging.h>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/embedding_request.h"
#include "api/generate_request.h"
#include "api/tokenize_request.h"
#include "base/check.h"
#include "base/json.h"
#include "server/grpc_message.h"

namespace {

using namespace pelton;  // NOLINT: a program of its own

constexpr api::RequestLimits kLimits{.vocab_size = 1000};

template <typename Read>
void check(const Result<Json>& body, const Read& read) {
  if (!body.ok()) {
    CHECK(api::api_error(body.error()).status == 400);
    return;
  }
  CHECK(Json::parse(body->dump()).ok(), "a body that is no JSON");
  const auto request = read(*body, kLimits);
  if (!request.ok()) CHECK(api::api_error(request.error()).status == 400);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  google::protobuf::SetLogHandler(nullptr);
  const int bytes = static_cast<int>(size);
  v1::GenerateRequest generate;
  if (generate.ParseFromArray(data, bytes)) {
    check(server::chat_body(generate), api::read_chat_request);
    check(server::completion_body(generate), api::read_completion_request);
    check(server::tokens_body(generate), api::read_generate_request);
  }
  v1::TokenizeRequest tokenize;
  if (tokenize.ParseFromArray(data, bytes)) {
    check(server::tokenize_body(tokenize), api::read_tokenize_request);
  }
  v1::EmbedRequest embed;
  if (embed.ParseFromArray(data, bytes)) {
    check(server::embedding_body(embed), api::read_embedding_request);
  }
  return 0;
}
