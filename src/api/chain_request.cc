#include "api/chain_request.h"

#include <utility>

#include <fmt/format.h>

#include "api/fields.h"
#include "api/json_object.h"

namespace pelton::api {

Result<ChainRequest> parse_chain_request(std::string_view body, FieldTable* fields_read) {
  TRY_ASSIGN(const Json json, parse_object(body));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, fields_read);
  ChainRequest request;
  request.stream = fields.boolean("stream").value_or(false);
  constexpr double kTimeoutMax_s = 86'400;
  request.timeout_s = fields.number("timeout", {.low = 0, .high = kTimeoutMax_s, .low_open = true});
  const Json* const input = fields.object("input");
  for (const Json::Member& member : json.as_object()) {
    if (member.key == "stream" || member.key == "timeout" || member.key == "input") continue;
    fields.refuse(member.key, fmt::format("'{}' is no field of a chain's request: it has 'input', "
                                          "'stream' and 'timeout'",
                                          member.key));
  }
  if (complaint) return std::move(*complaint);
  request.input = input == nullptr ? Json{Json::Object{}} : *input;
  return request;
}

}  // namespace pelton::api
