// The bodies of requests: JSON objects.
#pragma once

#include <optional>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace pelton::api {

// Errors: kInvalidArgument, of no field.
Result<Json> parse_object(std::string_view body);
std::optional<Error> not_an_object(const Json& body);

}  // namespace pelton::api
