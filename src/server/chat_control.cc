// POST /v1/chat/completions/control: acts on an answer that is being generated, as llama.cpp's
// does:
// {"id": "chatcmpl-…", "action": "reasoning_end"}.
#include "api/fields.h"
#include "api/json_object.h"
#include "base/json_writer.h"
#include "server/endpoints.h"
#include "server/reply.h"

namespace pelton::server {
namespace {

// The answer's id.
Result<std::string> parse_control(std::string_view body) {
  TRY_ASSIGN(const Json json, api::parse_object(body));
  std::optional<Error> complaint;
  const api::Fields fields(json, "", complaint);
  const std::string* id = fields.text("id", 256);
  if (id == nullptr) fields.refuse("id", "'id' is missing");
  const std::string* action = fields.text("action", 64);
  if (action == nullptr || *action != "reasoning_end") {
    fields.refuse("action", "'action' must be 'reasoning_end'");
  }
  if (complaint) return std::move(*complaint);
  return *id;
}

}  // namespace

void control_chat(Call call, Services& services) {
  const Result<std::string> id = parse_control(call.request.body);
  if (!id.ok()) return call.send(api::api_error(id.error()));
  if (!services.running_answers.end_reasoning(*id, call.tenant)) {
    return call.send(
        api::api_error({ErrorCode::kNotFound, "No answer of this id is being generated", "id"}));
  }
  std::string body;
  base::JsonWriter(body)
      .begin_object()
      .key("id")
      .string(*id)
      .key("action")
      .string("reasoning_end")
      .key("status")
      .string("accepted")
      .end_object();
  call.send(json_reply(std::move(body)));
}

}  // namespace pelton::server
