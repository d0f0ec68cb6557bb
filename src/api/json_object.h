// The bodies of requests: JSON objects, no two of whose keys are equal at any depth. Which of two
// would count is a matter of the reader, so that what checks a body before us (a proxy, a filter)
// may see another request than we do; it is refused instead. Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace pelton::api {

// Errors: kInvalidArgument, of no field or, where a key stands twice, of its path.
Result<Json> parse_object(std::string_view body);
// What parse_object says of a body that has been parsed.
std::optional<Error> check_object(const Json& body);

// The text of a body's "model", before anything else is read of it: a pass over the text that keeps
// nothing. Empty: it has none, or null. Errors as parse_object's, and of another value than a text.
Result<std::string> model_asked(std::string_view body);

}  // namespace pelton::api
