// "tools" and "tool_choice" as the Responses API writes them: a function's members stand in the
// tool itself. Pure functions; any thread.
#pragma once

#include "api/tool.h"

namespace pelton::api {

// As read_tools(), and those of the server's own that are `offered`. Tools of other kinds are left
// out with a warning; a choice that names one of them is refused. "allowed_tools" leaves the others
// out.
ToolFields read_response_tools(const Fields& body, BuiltinTools offered);

}  // namespace pelton::api
