// What the JSON body of a request says that its way may depend on, read in one pass that keeps
// nothing else: bodies are large, and this runs where other clients' bytes wait. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace pelton::gateway {

// What every turn of a conversation begins with: its instructions ("system", "instructions"), and
// of "messages" or "input" all up to the first turn of the user's, in a form in which the fields'
// order does not matter. Empty: it has no such turn, or this is no JSON object.
std::string conversation_beginning(std::string_view body);

// "safety_identifier", else "user", else "metadata": {"user_id"}. Empty: none is a text, or this is
// no JSON object.
std::string user_of_body(std::string_view body);

// Whether one of its "tools" is of a type that a server runs itself (api::BuiltinTools).
bool has_builtin_tool(std::string_view body);

}  // namespace pelton::gateway
