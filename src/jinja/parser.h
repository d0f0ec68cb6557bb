// A template's tokens -> its tree. Bounded in depth: whatever walks the tree may recurse. Pure; any
// thread.
#pragma once

#include <string_view>

#include "base/result.h"
#include "jinja/syntax_tree.h"

namespace pelton::jinja {

// How high an expression and how deep blocks may nest.
inline constexpr int kTreeDepthMax = 200;

// Error kInvalidArgument that names the line.
Result<Body> parse(std::string_view source);

}  // namespace pelton::jinja
