#include "api/json_object.h"

#include <utility>

#include <fmt/format.h>

namespace pelton::api {

std::optional<Error> not_an_object(const Json& body) {
  if (body.is_object()) return std::nullopt;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("the body must be a JSON object, not {}", body.kind_name()), ""};
}

Result<Json> parse_object(std::string_view body) {
  TRY_ASSIGN(Json json, Json::parse(body));
  if (std::optional<Error> error = not_an_object(json)) return *std::move(error);
  return json;
}

}  // namespace pelton::api
