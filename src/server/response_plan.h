// A request to /v1/responses, understood: its items behind those of the responses before it; then
// the tokens of its prompt.
#pragma once

#include <optional>
#include <vector>

#include "api/response_request.h"
#include "base/json.h"
#include "base/result.h"
#include "server/chat_prompt.h"
#include "server/request_pipeline.h"
#include "server/response_conversation.h"
#include "server/response_link.h"

namespace pelton::server {

struct ResponsePlan {
  Json body;  // as it was asked, with the items that it names
  api::ResponseRequest request;
  std::vector<PastResponse> history;
  std::optional<ChatPrompt> prompt;  // write_prompt()'s
  std::vector<TokenId> opening;      // of a call that the model is made to make; ends the prompt
};

// Everything that may be wrong with a request, its formats and its prompt aside, is found here. Any
// thread; nobody else touches `link` meanwhile.
// `runs_tools`: those of the server's own that the request asks for.
Result<ResponsePlan> plan_response(Json body, const ResponseLink& link,
                                   const ModelRequest::Scope& scope, bool runs_tools = false);

// Writes the prompt and begins the model's turn; of a request whose truncation is "auto" the oldest
// items go. May run the model's chat template. Errors: kInvalidArgument.
Result<void> write_prompt(ResponsePlan& plan, const ModelRequest::Scope& scope);

// A stored response, to stand before another one.
Result<PastResponse> past_response(std::string_view input, std::string_view output,
                                   std::vector<TokenId> turn);

}  // namespace pelton::server
