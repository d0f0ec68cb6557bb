// POST /invocations: the one route that SageMaker knows. The body says what is asked for, and is
// answered as on its own route.
#include "base/json.h"
#include "server/server.h"

namespace pelton::server {

void Server::answer_invocation(Call call) {
  const Result<Json> body = Json::parse(call.request.body);
  const bool is_object = body.ok() && body->is_object();
  if (is_object && body->find("prompt") != nullptr) return answer_completion(std::move(call));
  // Also what is no request at all: it is told so there.
  answer_chat_completion(std::move(call));
}

}  // namespace pelton::server
