#include "api/chat_request.h"

#include <utility>

#include <fmt/format.h>

#include "api/json_object.h"

namespace pelton::api {
namespace {

constexpr size_t kModelBytesMax = 512;

void read_logprobs(const Fields& body, ChatRequest& request) {
  const bool wanted = body.boolean("logprobs").value_or(false);
  const auto top = body.integer("top_logprobs", {.low = 0, .high = kTopLogprobsMax});
  if (wanted) request.top_logprobs = static_cast<int>(top.value_or(0));
  if (top && *top > 0 && !wanted) {
    body.refuse("top_logprobs", "'top_logprobs' is only allowed with 'logprobs': true");
  }
}

void check_modalities(const Fields& body) {
  if (body.find("audio") != nullptr) body.refuse_unsupported("audio", "audio output");
  const Json* modalities = body.array("modalities", 8);
  if (modalities == nullptr) return;
  for (const Json& item : modalities->as_array()) {
    if (item.is_string() && item.as_string() == "text") continue;
    body.refuse_unsupported("modalities", "anything but 'text'");
  }
}

// What vLLM's clients may say beside.
void read_prompt_wishes(const Fields& body, const RequestLimits& limits, ChatRequest& request) {
  request.begins_answer = body.boolean("add_generation_prompt").value_or(true);
  if (!request.begins_answer && !limits.prompt_alone) {
    body.refuse_unsupported("add_generation_prompt", "a prompt that begins no answer");
  }
  refuse_unless_empty(body, "documents");
  if (body.boolean("echo").value_or(false)) body.refuse_unsupported("echo", "an echo of a chat");
  const auto best_of = body.integer("best_of", {.low = 0, .high = 20});
  if (best_of && *best_of > 1) body.refuse_unsupported("best_of", "more than 1");
  if (body.boolean("return_prompt_text").value_or(false)) {
    body.refuse_unsupported("return_prompt_text", "the prompt's text (see .../render)");
  }
}

// What OpenAI's clients may say beside what is obeyed. Wishes about speed, price and caches
// (prediction, service_tier, prompt_cache_*) change no answer and are let be; what would have to be
// done and is not is refused, or told in a warning where the answer stands without it.
void check_other_wishes(const Fields& body, ChatRequest& request) {
  static constexpr std::pair<std::string_view, std::string_view> kRefused[] = {
      {"functions", "the older 'functions' (use 'tools')"},
      {"function_call", "the older 'function_call' (use 'tool_choice')"},
      {"moderation", "moderation"},
  };
  for (const auto& [key, what] : kRefused) {
    if (body.find(key) != nullptr) body.refuse_unsupported(key, what);
  }
  if (const std::string* verbosity = body.text("verbosity", 64)) {
    if (*verbosity != "low" && *verbosity != "medium" && *verbosity != "high") {
      body.refuse("verbosity", "'verbosity' must be 'low', 'medium' or 'high'");
    }
  }
  if (body.object("web_search_options") != nullptr) {
    request.warnings.emplace_back("web_search_options ignored: this server runs no tools itself");
  }
  if (body.boolean("store").value_or(false)) {
    request.warnings.emplace_back("store ignored: chat completions are not kept");
  }
}

}  // namespace

std::optional<ReasoningEffort> read_effort(const Fields& fields, std::string_view key) {
  const std::string* word = fields.text(key, 64);
  if (word == nullptr) return std::nullopt;
  if (*word == "none" || *word == "minimal" || *word == "low") return ReasoningEffort::kLow;
  if (*word == "medium") return ReasoningEffort::kMedium;
  if (*word == "high" || *word == "xhigh" || *word == "max") return ReasoningEffort::kHigh;
  fields.refuse(key, fmt::format("'{}' must be 'none', 'minimal', 'low', 'medium', 'high' or "
                                 "'xhigh'",
                                 fields.path(key)));
  return std::nullopt;
}

Result<ChatRequest> parse_chat_request(std::string_view body, const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(body));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint);
  ChatRequest request;
  if (const std::string* model = fields.text("model", kModelBytesMax)) request.model = *model;
  request.messages = read_messages(fields);
  ToolFields tools = read_tools(fields);
  request.tools = std::move(tools.functions);
  request.declared_functions = std::move(tools.declared);
  request.forced_call = std::move(tools.forced_call);
  request.parallel_calls = tools.parallel_calls;
  request.warnings = std::move(tools.warnings);

  if (const Json* kwargs = fields.object("chat_template_kwargs")) {
    request.reasoning_effort =
        read_effort(Fields(*kwargs, "chat_template_kwargs", complaint), "reasoning_effort");
  }
  if (const auto effort = read_effort(fields, "reasoning_effort"))
    request.reasoning_effort = effort;
  request.include_reasoning = fields.boolean("include_reasoning").value_or(true);
  read_logprobs(fields, request);
  check_modalities(fields);
  check_other_wishes(fields, request);
  read_prompt_wishes(fields, limits, request);
  if (fields.boolean("continue_final_message").value_or(false)) {
    fields.refuse_unsupported("continue_final_message", "continuing a message");
  }
  request.generation = read_generation_fields(fields, limits);
  if (complaint) return std::move(*complaint);
  return request;
}

}  // namespace pelton::api
