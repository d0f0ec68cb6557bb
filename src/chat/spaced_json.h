// JSON as Python writes it, which is how models were shown it: ", " between values, ": " behind
// names. A pure function; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace pelton::chat {

void append_spaced_json(std::string& out, const Json& value);
// Of a valid JSON text; strings and numbers stay as they are written, whatever a double holds.
void append_spaced_json_text(std::string& out, std::string_view text);

}  // namespace pelton::chat
