// Between gRPC's messages and the HTTP API's bodies, as trees, not as text: one validator says what
// is valid. Pure.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include <pelton/v1/inference.pb.h>

#include "api/error.h"
#include "base/json.h"
#include "base/result.h"

namespace pelton::server {

// Bodies for the readers of api/. Errors: kInvalidArgument for what JSON cannot say (a number that
// is not finite), more values than a body may have, or a part that is no JSON itself.
Result<Json> chat_body(const v1::GenerateRequest& request);
Result<Json> completion_body(const v1::GenerateRequest& request);
Result<Json> tokens_body(const v1::GenerateRequest& request);
Result<Json> tokenize_body(const v1::TokenizeRequest& request);
Result<Json> embedding_body(const v1::EmbedRequest& request);

// An error of the HTTP API names that one's fields: where the message calls `theirs` what the body
// calls `ours`, the message says so.
struct ProtoWord {
  std::string_view ours;
  std::string_view theirs;
};
api::ApiError in_proto_words(api::ApiError error, std::initializer_list<ProtoWord> words);

}  // namespace pelton::server
