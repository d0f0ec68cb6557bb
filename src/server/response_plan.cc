#include "server/response_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "api/documented_fields.h"
#include "server/item_reference.h"
#include "server/response_truncation.h"
#include "server/tool_servers.h"

namespace pelton::server {
namespace {

// Of the context, what is kept for an answer of no given length.
constexpr int64_t kAnswerShareWhenTruncating = 8;

Error previous_not_found(std::string_view id) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("Previous response with id '{}' not found.", id.substr(0, 256)),
          "previous_response_id"};
}

Error previous_unfinished(std::string_view id) {
  return {ErrorCode::kUnsupported,
          fmt::format("Previous response with id '{}' is still being made; go on from it when its "
                      "status is 'completed'",
                      id.substr(0, 256)),
          "previous_response_id"};
}

// What its prompt depends on beside its words.
struct PromptContext {
  std::string date;
  std::string salt;
};

// What another model sampled are not this one's tokens: its words are.
void drop_foreign_turns(const ServedModel& model, std::vector<PastResponse>& history) {
  for (PastResponse& past : history) {
    if (!model.answers_to(past.model)) past.turn.clear();
  }
}

Result<std::vector<PastResponse>> response_history(const std::string& id,
                                                   const ModelRequest::Scope& scope,
                                                   const ResponseLink& link) {
  if (id.empty()) return std::vector<PastResponse>();
  std::vector<PastResponse> history;
  if (id == link.last_id) {
    history = link.last_history;
    drop_foreign_turns(scope.model, history);
    return history;
  }
  if (scope.services.options.response_store == nullptr) return previous_not_found(id);
  auto stored = scope.services.options.response_store->history({.owner = scope.tenant, .id = id});
  if (!stored.ok() && stored.error().code == ErrorCode::kNotFound) {
    const auto made = scope.services.background.find({.owner = scope.tenant, .id = id});
    return made != nullptr && !made->over() ? previous_unfinished(id) : previous_not_found(id);
  }
  if (!stored.ok()) return stored.error();
  for (store::StoredResponse& one : *stored) {
    TRY_ASSIGN(PastResponse past, past_response(one.input, one.output, std::move(one.turn)));
    const Result<Json> body = Json::parse(one.body);
    if (body.ok()) past.model = body->string("model").value_or("");
    history.push_back(std::move(past));
  }
  drop_foreign_turns(scope.model, history);
  return history;
}

// Reasoning that comes back as this server gave it out. What another server has encrypted, or this
// one before its key changed, nobody can read here: a conversation goes on without it.
Result<void> read_encrypted_reasoning(api::ResponseRequest& request,
                                      const ModelRequest::Scope& scope) {
  for (api::ResponseItem& item : request.items) {
    if (item.encrypted_content.empty()) continue;
    const std::string field = item.path + ".encrypted_content";
    TRY_ASSIGN(const std::string read,
               scope.services.encrypted_reasoning.read_returned(
                   {.token = item.encrypted_content, .tenant = scope.tenant, .field = field},
                   request.warnings));
    std::string().swap(item.encrypted_content);  // it may be large, and is said
    if (!read.empty()) item.text = read;
  }
  return {};
}

// As few as must go for the prompt to leave room for the answer. More may go only where less is
// left: so the number is found from the newest item on, by doubling and then halving what is kept.
// An input may be far longer than the context: it is not to be written again and again.
Result<void> drop_oldest_items(ResponsePlan& plan, const ModelRequest::Scope& scope,
                               const PromptContext& of) {
  const int64_t context = scope.model.context_limit();
  const api::GenerationFields& fields = plan.request.generation;
  const int64_t answer =
      std::max(fields.max_tokens.value_or(context / kAnswerShareWhenTruncating), fields.min_tokens);
  const auto fits = [&](const ChatPrompt& prompt) {
    return static_cast<int64_t>(prompt.tokens.size() + prompt.opening.size() +
                                plan.opening.size()) +
               answer <=
           context;
  };
  if (fits(*plan.prompt)) return {};
  const ResponseItems all{.history = plan.history, .items = plan.request.items};
  api::ResponseRequest kept_request = plan.request;
  const auto prompt_without = [&](size_t count) {
    ResponseItems left = without_oldest(all, count);
    kept_request.items = std::move(left.items);
    return response_prompt(kept_request,
                           {.history = left.history, .current_date = of.date, .salt = of.salt},
                           scope.model, scope.services.turn_cache);
  };
  const size_t most = droppable_items(all);
  TRY_ASSIGN(plan.prompt, prompt_without(most));
  if (!fits(*plan.prompt)) return {};  // as good as it gets
  size_t too_few = 0;
  size_t enough = most;
  for (size_t kept = 1; too_few + 1 < enough; kept *= 2) {
    const size_t count =
        too_few > 0 || kept >= most ? too_few + (enough - too_few) / 2 : most - kept;
    TRY_ASSIGN(ChatPrompt prompt, prompt_without(count));
    if (fits(prompt)) {
      enough = count;
      plan.prompt = std::move(prompt);
    } else {
      too_few = count;
    }
  }
  // A connection remembers what came before without a store's bounds: not what has been dropped,
  // or each turn would add to it for ever.
  plan.history = without_oldest(all, enough).history;
  return {};
}

}  // namespace

Result<PastResponse> past_response(std::string_view input, std::string_view output,
                                   std::vector<TokenId> turn) {
  TRY_ASSIGN(const Json input_items, Json::parse(input));
  TRY_ASSIGN(const Json output_items, Json::parse(output));
  PastResponse past;
  TRY_ASSIGN(past.input, api::parse_response_items(input_items));
  TRY_ASSIGN(past.output, api::parse_response_items(output_items));
  past.turn = std::move(turn);
  return past;
}

namespace {

void warn_of_calls_max(const ToolServers& tools, api::ResponseRequest& request) {
  const int64_t most = tools.calls_max();
  if (request.tool_calls_max.value_or(0) <= most) return;
  request.warnings.push_back(api::unread_warning(
      "max_tool_calls", fmt::format("this server makes at most {} calls for a response", most)));
}

}  // namespace

Result<ResponsePlan> plan_response(Json body, const ResponseLink& link,
                                   const ModelRequest::Scope& scope, bool runs_tools) {
  const ServedModel& model = scope.model;
  if (std::optional<Error> error = model.no_chat()) return *error;
  ResponsePlan plan;
  TRY_ASSIGN(std::optional<Json> resolved,
             with_referenced_items(body, {scope.tenant, scope.services.options.response_store}));
  plan.body = resolved ? *std::move(resolved) : std::move(body);
  api::RequestLimits limits = model.request_limits();
  if (runs_tools && scope.services.options.tools != nullptr && model.chat->has_builtin_tools()) {
    limits.builtins = scope.services.options.tools->offered();
  }
  TRY_ASSIGN(plan.request, api::parse_response_request(plan.body, limits));
  if (plan.request.builtins.any()) warn_of_calls_max(*scope.services.options.tools, plan.request);
  TRY(read_encrypted_reasoning(plan.request, scope));
  TRY_ASSIGN(plan.history, response_history(plan.request.previous_response_id, scope, link));
  return plan;
}

Result<void> write_prompt(ResponsePlan& plan, const ModelRequest::Scope& scope) {
  const ServedModel& model = scope.model;
  const api::ResponseRequest& request = plan.request;
  const PromptContext of{.date = model.current_date.value_or(scope.identity.prompt_date()),
                         .salt = scope.services.access_control.cache_salt(
                             scope.tenant, request.generation.cache_salt)};
  if (request.forced_call) {
    plan.opening = model.chat->call_opening(request.forced_call->function_name);
  }
  TRY_ASSIGN(
      plan.prompt,
      response_prompt(request, {.history = plan.history, .current_date = of.date, .salt = of.salt},
                      model, scope.services.turn_cache));
  if (request.may_drop_items) TRY(drop_oldest_items(plan, scope, of));
  begin_turn(model, *plan.prompt, plan.opening);
  return {};
}

}  // namespace pelton::server
