// What a chat request, of whatever protocol, says of the turn it asks for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/chat_request.h"
#include "api/response_request.h"
#include "server/chat_turn.h"
#include "server/served_model.h"

namespace pelton::server {

// Stop strings, and the opening of a call that the model is made to make. Where it is kept is the
// caller's to add.
ChatTurn::Options turn_options(const api::ChatRequest& request, const ServedModel& model);

// What a parser needs of the functions: names and schemas. Null where the format needs none.
std::shared_ptr<const std::vector<chat::FunctionTool>> parsed_functions(
    const std::vector<api::FunctionTool>& tools, const chat::ChatFormat& format);

// What was ignored of it: the request's own, and what this model's format does not know.
std::vector<std::string> warnings_of(const api::ChatRequest& request, const ServedModel& model);
std::vector<std::string> warnings_of(const api::ResponseRequest& request, const ServedModel& model);

}  // namespace pelton::server
