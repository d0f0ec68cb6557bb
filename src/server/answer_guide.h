// What a request's output format and tools demand of the answer, as the guide that its sampling
// follows. Any thread; see grammar_store.h for what it costs. Errors are the caller's, each with
// its field, or those of GrammarStore::TenantView: kNotFound, kDeadline.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/chat_request.h"
#include "api/output_format.h"
#include "api/tool.h"
#include "base/result.h"
#include "grammar/grammar_state.h"
#include "server/format_compiler.h"
#include "server/grammar_store.h"
#include "server/served_model.h"

namespace pelton::server {

struct AnswerDemands {
  const std::optional<api::OutputFormat>& format;
  const std::vector<api::FunctionTool>& tools;
  const std::optional<api::ForcedCall>& forced_call;
  api::BuiltinTools builtins = {};
};

// Of a turn in the model's chat format; none if nothing is demanded. A strict function's arguments
// follow its parameters; so do those of a function whose call is forced, as far as its schema can
// be followed (they are a JSON object at least).
Result<std::optional<grammar::GrammarState>> chat_guide(const AnswerDemands& demands,
                                                        const ServedModel& model,
                                                        const GrammarStore::TenantView& grammars);

// The same, later. `Request`: api::ChatRequest or whatever has the same members.
template <typename Request>
FormatCompiler::MakeGuide chat_guide_of(std::shared_ptr<const Request> request,
                                        const ServedModel& model) {
  return [request = std::move(request), &model](const GrammarStore::TenantView& grammars) {
    AnswerDemands demands{.format = request->generation.format,
                          .tools = request->tools,
                          .forced_call = request->forced_call};
    if constexpr (requires { request->builtins; }) demands.builtins = request->builtins;
    return chat_guide(demands, model, grammars);
  };
}

// Of plain text.
Result<std::optional<grammar::GrammarState>> text_guide(
    const std::optional<api::OutputFormat>& format, const ServedModel& model,
    const GrammarStore::TenantView& grammars);

}  // namespace pelton::server
