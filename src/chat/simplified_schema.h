// Rewrites a JSON Schema as tool libraries write it (pydantic above all) into one whose every part
// the model's type text can express. Without it an optional parameter would be shown as "any".
// Pure functions; any thread.
#pragma once

#include "base/json.h"

namespace pelton::chat {

// - "$ref" to this schema's own "$defs" or "definitions" becomes what it names, unless that is
//   recursive, or the whole would grow beyond kSimplifiedNodesMax values;
// - "anyOf" of one variant and null becomes that variant; of simple types, the list of these types;
// - titles, and defaults that are null, are left out;
// - "allOf" of one becomes that one.
// All else stays as it is.
inline constexpr int kSimplifiedNodesMax = 20000;

Json simplified_schema(const Json& schema);

}  // namespace pelton::chat
