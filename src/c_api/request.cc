// A caller's request: its defaults, and the tokens of its prompt.
#include <algorithm>

#include <fmt/format.h>

#include "api/chat_request.h"
#include "base/json.h"
#include "c_api/model.h"
#include "c_api/sized_struct.h"
#include "c_api/status.h"
#include "chat/format.h"
#include "checkpoint/generation_defaults.h"
#include "prompt/chat_conversation.h"

namespace pelton::c_api {
namespace {

Result<Json> array_of(const char* text, std::string_view field) {
  Result<Json> parsed = Json::parse(text);
  if (parsed.ok() && parsed->is_array()) return parsed;
  return Error{ErrorCode::kInvalidArgument,
               parsed.ok() ? fmt::format("'{}' is a JSON array", field)
                           : fmt::format("'{}': {}", field, parsed.error().message),
               std::string(field)};
}

// The body of OpenAI's chat completions, which is checked as the server checks it.
Result<api::ChatRequest> chat_request(const Model& model, const pelton_request& request) {
  Json body(Json::Object{});
  TRY_ASSIGN(Json messages, array_of(request.messages, "messages"));
  body.set("messages", std::move(messages));
  if (request.tools != nullptr) {
    TRY_ASSIGN(Json tools, array_of(request.tools, "tools"));
    body.set("tools", std::move(tools));
  }
  if (request.reasoning_effort != nullptr) {
    body.set("reasoning_effort", Json(std::string(request.reasoning_effort)));
  }
  return api::parse_chat_request(body.dump(), {.vocab_size = model.loaded->config().vocab_size});
}

// Tools of other kinds are the server's to run; here nobody would.
Result<void> check_all_are_functions(const pelton_request& request, const api::ChatRequest& asked) {
  if (request.tools == nullptr) return {};
  TRY_ASSIGN(const Json tools, array_of(request.tools, "tools"));
  if (tools.as_array().size() == asked.tools.size()) return {};
  return Error{ErrorCode::kUnsupported, "'tools' may hold functions only", "tools"};
}

Result<Prompt> chat_prompt(const Model& model, const pelton_request& request) {
  TRY_ASSIGN(const std::shared_ptr<const chat::ChatFormat> format, model.loaded->chat_format());
  TRY_ASSIGN(const api::ChatRequest asked, chat_request(model, request));
  TRY(check_all_are_functions(request, asked));
  TRY_ASSIGN(chat::RenderedPrompt rendered, format->render(prompt::conversation_of(
                                                asked, base::local_date(model.clock.unix_ms()))));
  Prompt prompt{.tokens = std::move(rendered.tokens),
                .opening = std::move(rendered.opening),
                .is_chat = true,
                .has_tools = !asked.tools.empty()};
  if (!format->types_by_schema()) return prompt;
  std::vector<chat::FunctionTool> functions;
  for (const api::FunctionTool& tool : asked.tools) {
    functions.push_back({.name = tool.name, .description = {}, .parameters = tool.parameters});
  }
  prompt.functions = std::make_shared<const std::vector<chat::FunctionTool>>(std::move(functions));
  return prompt;
}

}  // namespace

pelton_request default_request(const node::LoadedModel& model) {
  const checkpoint::GenerationDefaults file =
      checkpoint::read_generation_defaults(model.checkpoint().text_folders());
  pelton_request request{};
  request.size = sizeof(pelton_request);
  request.temperature = static_cast<float>(std::clamp(file.temperature.value_or(1.0), 0.0, 2.0));
  request.top_p = static_cast<float>(std::clamp(file.top_p.value_or(1.0), 1e-6, 1.0));
  request.min_p = static_cast<float>(file.min_p.value_or(0.0));
  request.top_k = file.top_k.value_or(0);
  request.repetition_penalty =
      static_cast<float>(std::clamp(file.repetition_penalty.value_or(1.0), 0.01, 100.0));
  return request;
}

Result<pelton_request> read_request(const Model& model, const pelton_request* request) {
  TRY(check_given(request, "request"));
  TRY_ASSIGN(const pelton_request read, read_struct(model.defaults, request, "request"));
  if (read.reserved != 0) {
    return Error{ErrorCode::kUnsupported, "'reserved' must be 0: no version of libpelton reads it",
                 "reserved"};
  }
  return read;
}

Result<Prompt> prompt_of(const Model& model, const pelton_request& request) {
  const int given = (request.tokens != nullptr ? 1 : 0) + (request.prompt != nullptr ? 1 : 0) +
                    (request.messages != nullptr ? 1 : 0);
  if (given != 1) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("one of 'tokens', 'prompt' and 'messages' is to be set, not {}", given), ""};
  }
  if (request.messages != nullptr) return chat_prompt(model, request);
  if (request.tools != nullptr || request.reasoning_effort != nullptr) {
    return Error{ErrorCode::kInvalidArgument,
                 "'tools' and 'reasoning_effort' go with 'messages' only", "tools"};
  }
  if (request.tokens != nullptr) {
    return Prompt{.tokens = {request.tokens, request.tokens + request.token_count}};
  }
  TRY_ASSIGN(const tokenizer::Tokenizer* tokenizer, model.loaded->tokenizer());
  return Prompt{.tokens = tokenizer->encode_prompt(request.prompt)};
}

}  // namespace pelton::c_api

using namespace pelton::c_api;  // NOLINT: of the functions below, which stand in no namespace

void pelton_request_init(const pelton_model* model, pelton_request* request, size_t size) {
  init_struct(model == nullptr ? pelton_request{} : model->shared->defaults, request, size);
}

pelton_status pelton_prompt_tokens(const pelton_model* model, const pelton_request* request,
                                   int32_t* tokens, size_t* count) {
  return guarded([&]() -> pelton::Result<pelton_status> {
    TRY(check_given(model, "model"));
    TRY(check_given(count, "count"));
    TRY_ASSIGN(const pelton_request asked, read_request(*model->shared, request));
    TRY_ASSIGN(const Prompt prompt, prompt_of(*model->shared, asked));
    return fill(std::span<const int32_t>(prompt.tokens), tokens, count);
  });
}
