// POST /invocations: the one route that SageMaker knows. The body's fields say what is asked for,
// and it is answered as on its own route.
#include <algorithm>
#include <string_view>

#include "api/json_object.h"
#include "base/json.h"
#include "server/endpoints.h"
#include "server/routes.h"

namespace pelton::server {
namespace {

bool has(const Json& body, std::string_view key) {
  const Json* found = body.find(key);
  return found != nullptr && !found->is_null();
}

// Of what has an "input". The words of a response are one text or items, which are objects; several
// texts and tokens are embedded, and so is what only embeddings can be asked.
bool is_embedded(const Json& body) {
  static constexpr std::string_view kKeys[] = {"encoding_format", "dimensions", "pooling"};
  if (std::ranges::any_of(kKeys, [&](std::string_view key) { return has(body, key); })) return true;
  const Json& input = *body.find("input");
  return input.is_array() && !input.as_array().empty() && !input.as_array().front().is_object();
}

}  // namespace

void invocations(Call call, Services& services) {
  const Result<Json> body = api::parse_object(call.request.body);
  if (!body.ok()) return call.send(api::api_error(body.error()));
  const auto answer_as = [&](std::string_view path) {
    call.endpoint = find_endpoint("POST", path).endpoint;
    call.endpoint->function(std::move(call), services);
  };
  const auto has_both = [&](std::string_view one, std::string_view other) {
    return has(*body, one) && has(*body, other);
  };
  if (has(*body, "messages")) return answer_as("/v1/chat/completions");
  if (has(*body, "prompt")) return answer_as("/v1/completions");
  if (has_both("query", "documents")) return answer_as("/v1/rerank");
  if (has_both("queries", "documents")) return answer_as("/v1/score");
  if (has_both("text_1", "text_2")) return answer_as("/v1/score");
  if (has(*body, "input")) {
    return answer_as(is_embedded(*body) ? "/v1/embeddings" : "/v1/responses");
  }
  call.send(api::api_error(
      {ErrorCode::kInvalidArgument,
       "the body says neither 'messages' (a chat), 'prompt' (a completion), 'input' (a response or "
       "embeddings), 'query' and 'documents' (a reranking) nor 'text_1' and 'text_2' (a score)",
       ""}));
}

}  // namespace pelton::server
