// JSON Schema -> the TypeScript-like type text in which the model was shown its tools' parameters.
// Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace pelton::chat {

// Deeper schemas become "any" at this level. Total: any JSON value gives some text.
inline constexpr int kSchemaDepthMax = 64;

std::string typescript_type(const Json& schema);

// "// " before each line of `text`, and a newline after each.
void append_comment_lines(std::string& out, std::string_view text);

}  // namespace pelton::chat
