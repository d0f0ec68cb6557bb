#include "api/chat_request.h"

#include <utility>

#include <fmt/format.h>

#include "api/documented_fields.h"
#include "api/json_object.h"

namespace pelton::api {
namespace {

constexpr size_t kDocumentsMax = 10'000;

constexpr size_t kModelBytesMax = 512;

void read_logprobs(const Fields& body, const RequestLimits& limits, ChatRequest& request) {
  const bool wanted = body.boolean("logprobs").value_or(false);
  const auto top = body.integer("top_logprobs", {.low = 0, .high = limits.top_logprobs_max});
  if (wanted) request.top_logprobs = static_cast<int>(top.value_or(0));
  if (top && *top > 0 && !wanted) {
    body.refuse("top_logprobs", "'top_logprobs' is only allowed with 'logprobs': true");
  }
  check_logprob_tokens(body, request.generation, wanted);
}

void check_modalities(const Fields& body) {
  const Json* modalities = body.array("modalities", 8);
  if (modalities == nullptr) return;
  for (const Json& item : modalities->as_array()) {
    if (item.is_string() && item.as_string() == "text") continue;
    body.refuse_unsupported("modalities", "anything but 'text'");
  }
}

// OpenAI's predicted outputs: a text, or parts of type "text" that make one.
void read_prediction(const Fields& body, ChatRequest& request) {
  constexpr size_t kBytesMax = size_t{1} << 20;
  constexpr size_t kPartsMax = 1000;
  const Json* const object = body.object("prediction");
  if (object == nullptr) return;
  const Fields fields(*object, "prediction", body.complaint());
  const std::string* const type = fields.text("type", 16);
  if (type == nullptr || *type != "content") return fields.refuse("type", "must be 'content'");
  const Json* const content = fields.find("content");
  if (content == nullptr || content->is_string()) {
    const std::string* const text = fields.text("content", kBytesMax);
    if (text == nullptr) return fields.refuse("content", "is missing");
    request.prediction = *text;
    return;
  }
  const Json* const parts = fields.array("content", kPartsMax);
  if (parts == nullptr) return;
  std::string text;
  for (const Json& part : parts->as_array()) {
    const std::optional<std::string> one = part.string("text");
    if (part.string("type") != "text" || !one) {
      return fields.refuse("content", "must be a text or parts of type 'text'");
    }
    text += *one;
  }
  if (text.size() > kBytesMax) return fields.refuse("content", "is longer than 1 MiB");
  request.prediction = std::move(text);
}

// What vLLM's clients may say beside.
void read_prompt_wishes(const Fields& body, const RequestLimits& limits, ChatRequest& request) {
  const std::optional<bool> begins = body.boolean("add_generation_prompt");
  request.continues_last = body.boolean("continue_final_message").value_or(false);
  request.begins_answer = request.continues_last || begins.value_or(true);
  if (request.continues_last && begins.value_or(false)) {
    body.refuse("continue_final_message",
                "'continue_final_message' and 'add_generation_prompt' exclude each other");
  }
  const bool ends_in_answer =
      !request.messages.empty() && request.messages.back().role == ChatRole::kAssistant;
  if (body.boolean("echo").value_or(false) && ends_in_answer) {
    request.echoes_last = true;
    if (!request.continues_last) {
      body.refuse_unsupported("echo", "showing a message that the answer does not go on with");
    }
  }
  if (!request.begins_answer && !limits.prompt_alone) {
    body.refuse_unsupported("add_generation_prompt", "a prompt that begins no answer");
  }
  const auto best_of = body.integer("best_of", {.low = 0, .high = 20});
  if (best_of && *best_of > 1) body.refuse_unsupported("best_of", "more than 1");
  if (body.boolean("return_prompt_text").value_or(false)) {
    body.refuse_unsupported("return_prompt_text", "the prompt's text (see .../render)");
  }
}

// What the answer stands without, reported in a warning.
void check_other_wishes(const Fields& body, ChatRequest& request) {
  check_verbosity(body, request.warnings);
  if (body.object("web_search_options") != nullptr) {
    request.warnings.emplace_back("web_search_options ignored: this server runs no tools itself");
  }
  if (body.boolean("store").value_or(false)) {
    request.warnings.emplace_back("store ignored: chat completions are not kept");
  }
}

// Of the template's arguments. Whether the model's template takes one is known where the model is.
void read_template_arguments(const Fields& body, ChatRequest& request) {
  const Json* arguments = body.object("chat_template_kwargs");
  if (arguments == nullptr) return;
  const Fields fields(*arguments, "chat_template_kwargs", body.complaint(), Fields::Reads::kKept);
  request.reasoning_effort = read_effort(fields, "reasoning_effort");
  request.thinks = fields.boolean("enable_thinking");
  fields.unread([&](const std::string& key, const Json& value) {
    if (key == "model_identity") fields.refuse_unsupported(key, "this argument of the template");
    request.template_arguments.push_back({key, value});
  });
}

// What a body says of the effort, each time that it does: a second word must agree with the first.
class StatedEffort {
 public:
  // `path` says so in the body.
  void add(const Fields& body, std::string_view path, std::optional<ReasoningEffort> effort) {
    if (!effort) return;
    if (effort_.value_or(*effort) != *effort) refuse_two_values(body, path, path_);
    effort_ = effort;
    path_ = path;
  }

  const std::optional<ReasoningEffort>& effort() const { return effort_; }

 private:
  std::optional<ReasoningEffort> effort_;
  std::string_view path_;
};

void switch_thinking_off(ChatRequest& request, std::string field) {
  request.thinks = false;
  request.thinks_field = std::move(field);
}

// OpenRouter's object: {"effort", "max_tokens", "exclude", "enabled"}.
void read_reasoning(const Fields& body, StatedEffort& stated, ChatRequest& request) {
  const Json* reasoning = body.object("reasoning");
  if (reasoning == nullptr) return;
  const Fields fields(*reasoning, "reasoning", body.complaint(), Fields::Reads::kKept);
  const bool off = !fields.boolean("enabled").value_or(true);
  if (off) {
    stated.add(body, "reasoning.enabled", ReasoningEffort::kLow);
    switch_thinking_off(request, "reasoning.enabled");
  }
  stated.add(body, "reasoning.effort", read_effort(fields, "effort"));
  constexpr int64_t kBudgetMax = std::numeric_limits<int32_t>::max();
  const auto budget = fields.integer("max_tokens", {.low = 0, .high = kBudgetMax});
  if (budget) request.generation.thinking_budget = budget;
  if (fields.boolean("exclude").value_or(false)) request.include_reasoning = false;
  read_reasoning_summary(fields);  // all of it is there to read
  refuse_other_reasoning(fields);
}

// Ollama's: whether to think, or how much.
void read_think(const Fields& body, StatedEffort& stated, ChatRequest& request) {
  const Json* think = body.find("think");
  if (think == nullptr) return;
  if (!think->is_bool()) return stated.add(body, "think", read_effort(body, "think"));
  if (think->as_bool()) return;  // as it does anyway
  switch_thinking_off(request, "think");
  stated.add(body, "think", ReasoningEffort::kLow);
}

// Shown as reasoning_content unless it says otherwise.
void apply_thinking(const Fields& body, StatedEffort& stated, ChatRequest& request) {
  const std::optional<ThinkingFields> thinking = read_thinking(body);
  if (!thinking) return;
  stated.add(body, thinking->budget_tokens ? "thinking.budget_tokens" : "thinking.type",
             thinking->effort);
  if (thinking->type == ThinkingFields::Type::kDisabled) {
    switch_thinking_off(request, "thinking.type");
  }
  apply_thinking_budget(body, *thinking, request.generation.thinking_budget);
  if (thinking->omitted) request.include_reasoning = false;
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

void refuse_other_reasoning(const Fields& reasoning) {
  // What is asked for is done: OpenAI's defaults.
  static constexpr std::pair<std::string_view, std::string_view> kDefaults[] = {
      {"context", "auto"}, {"mode", "standard"}};
  for (const auto& [key, value] : kDefaults) {
    const std::string* asked = reasoning.text(key, 64);
    if (asked != nullptr && *asked != value) reasoning.refuse_unsupported(key, "this value");
  }
  reasoning.refuse_unread({});
}

std::optional<bool> read_reasoning_summary(const Fields& reasoning) {
  static constexpr std::string_view kLengths[] = {"auto", "concise", "detailed", "none"};
  std::optional<bool> is_wanted;
  for (const std::string_view key : {"generate_summary", "summary"}) {  // the older name first
    check_word(reasoning, key, kLengths);
    if (const std::string* length = reasoning.text(key, 64)) is_wanted = *length != "none";
  }
  return is_wanted;
}

void check_verbosity(const Fields& fields, std::vector<std::string>& warnings) {
  const std::string* verbosity = fields.text("verbosity", 64);
  if (verbosity == nullptr || *verbosity == "medium") return;
  const std::string path = fields.path("verbosity");
  if (*verbosity != "low" && *verbosity != "high") {
    fields.refuse("verbosity", fmt::format("'{}' must be 'low', 'medium' or 'high'", path));
  }
  warnings.push_back(path + " ignored: the model knows one only");
}

Result<ChatRequest> read_chat_request(const Json& json, const RequestLimits& limits) {
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  ChatRequest request;
  if (const std::string* model = fields.text("model", kModelBytesMax)) request.model = *model;
  request.messages = read_messages(fields);
  ToolFields tools = read_tools(fields);
  request.tools = std::move(tools.functions);
  request.declared_functions = std::move(tools.declared);
  request.forced_call = std::move(tools.forced_call);
  request.parallel_calls = tools.parallel_calls;
  request.legacy_calls = tools.is_legacy;
  request.warnings = std::move(tools.warnings);
  warn_of_replaced(request.messages, request.warnings);

  request.generation = read_generation_fields(fields, limits);
  read_token_reports(fields, limits, request.generation);
  check_beside_forced_call(fields, request.generation.format, request.forced_call.has_value());
  request.include_reasoning = fields.boolean("include_reasoning").value_or(true);
  read_template_arguments(fields, request);
  StatedEffort stated;
  apply_thinking(fields, stated, request);
  read_reasoning(fields, stated, request);
  read_think(fields, stated, request);
  stated.add(fields, "reasoning_effort", read_effort(fields, "reasoning_effort"));
  if (stated.effort()) request.reasoning_effort = stated.effort();
  read_logprobs(fields, limits, request);
  read_prediction(fields, request);
  check_modalities(fields);
  check_other_wishes(fields, request);
  read_prompt_wishes(fields, limits, request);
  const Json* documents = fields.array("documents", kDocumentsMax);
  if (documents != nullptr && !documents->as_array().empty()) request.documents = *documents;
  check_unread_fields(fields, BodyKind::kChat, limits.unknown_fields, request.warnings);
  if (complaint) return std::move(*complaint);
  return request;
}

Result<ChatRequest> parse_chat_request(std::string_view body, const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(body));
  return read_chat_request(json, limits);
}

}  // namespace pelton::api
