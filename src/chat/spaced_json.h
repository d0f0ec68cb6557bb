// JSON as Python writes it, which is how models were shown it: ", " between values, ": " behind
// names. A pure function; any thread.
#pragma once

#include <string>

#include "base/json.h"

namespace pelton::chat {

void append_spaced_json(std::string& out, const Json& value);

}  // namespace pelton::chat
