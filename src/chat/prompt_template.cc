#include "chat/prompt_template.h"

#include <charconv>
#include <chrono>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace pelton::chat {
namespace {

// What a message may cost beside the limit for all: a template has some hundred nodes.
constexpr size_t kStepsOfMessage = 1000;

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// As vLLM finds it: the template goes over the parts of a content, and has no word for strings.
bool walks_content(std::string_view text) {
  const bool loops = has(text, "in message['content']") || has(text, "in message[\"content\"]") ||
                     has(text, "in message.content");
  return loops && !has(text, "is string") && !has(text, "is not string");
}

// Mistral's templates raise an exception at ids of another length.
bool wants_short_ids(std::string_view text) {
  return has(text, "[TOOL_CALLS]") && (has(text, "length != 9") || has(text, "length == 9"));
}

// DeepSeek's up to R1's distilled ones write a turn's calls only where its content is none.
bool writes_calls_without_content(std::string_view text) {
  return has(text, "content'] is none") || has(text, "content\"] is none");
}

// And put the arguments together with other texts.
bool joins_arguments(std::string_view text) {
  return has(text, "['arguments'] +") || has(text, "[\"arguments\"] +");
}

MessageShape shape_of(const TemplateSource& source) {
  const auto of_either = [&](const auto says) {
    return says(source.text) || says(source.for_tools);
  };
  return {.content_as_parts = walks_content(source.text),
          .short_call_ids = of_either(wants_short_ids),
          .empty_is_none = of_either(writes_calls_without_content),
          .arguments_as_text = of_either(joins_arguments)};
}

// Midnight of a YYYY-MM-DD; 1970 if it is none.
int64_t unix_seconds_of(std::string_view date) {
  int parts[3] = {1970, 1, 1};
  const size_t begins[3] = {0, 5, 8};
  const size_t sizes[3] = {4, 2, 2};
  for (size_t i = 0; date.size() == 10 && i < 3; ++i) {
    const char* const begin = date.data() + begins[i];
    std::from_chars(begin, begin + sizes[i], parts[i]);
  }
  const std::chrono::year_month_day day{std::chrono::year{parts[0]},
                                        std::chrono::month{static_cast<unsigned>(parts[1])},
                                        std::chrono::day{static_cast<unsigned>(parts[2])}};
  if (!day.ok()) return 0;
  return std::chrono::sys_seconds(std::chrono::sys_days(day)).time_since_epoch().count();
}

Result<jinja::Template> compiled(const TemplateSource& source, const std::string& text) {
  Result<jinja::Template> made = jinja::Template::compile(text);
  if (made.ok()) return made;
  return Error{.code = ErrorCode::kBadCheckpoint,
               .message = fmt::format("{}: the chat template, {}; another one can be given with "
                                      "--chat-template FILE",
                                      source.from, made.error().message),
               .field = "--chat-template"};
}

}  // namespace

PromptTemplate::PromptTemplate(TemplateSource source, jinja::Template plain,
                               jinja::Template for_tools)
    : source_(std::move(source)),
      plain_(std::move(plain)),
      for_tools_(std::move(for_tools)),
      names_(plain_.features().names),
      shape_(shape_of(source_)) {
  names_.merge(for_tools_.features().names);
}

Result<PromptTemplate> PromptTemplate::compile(TemplateSource source) {
  TRY_ASSIGN(jinja::Template plain, compiled(source, source.text));
  jinja::Template for_tools = plain;
  if (!source.for_tools.empty()) {
    TRY_ASSIGN(for_tools, compiled(source, source.for_tools));
  }
  return PromptTemplate(std::move(source), std::move(plain), std::move(for_tools));
}

Json PromptTemplate::features() const {
  const jinja::Features of_either[] = {plain_.features(), for_tools_.features()};
  Json json;
  const auto add = [&](std::string_view kind, const auto member) {
    std::set<std::string, std::less<>> names;
    for (const jinja::Features& features : of_either) {
      names.insert((features.*member).begin(), (features.*member).end());
    }
    json.set(kind, Json::Array(names.begin(), names.end()));
  };
  add("variables", &jinja::Features::variables);
  add("filters", &jinja::Features::filters);
  add("tests", &jinja::Features::tests);
  add("functions", &jinja::Features::functions);
  add("methods", &jinja::Features::methods);
  add("statements", &jinja::Features::statements);
  return json;
}

Result<jinja::Text> PromptTemplate::render(const Conversation& conversation) const {
  jinja::Dict variables = template_variables(conversation, shape_);
  const auto set = [&](std::string_view name, jinja::Value value) {
    variables.members.emplace_back(jinja::Value::own(name), std::move(value));
  };
  set("bos_token", jinja::Value::own(source_.bos_token));
  set("eos_token", jinja::Value::own(source_.eos_token));
  jinja::Template::Options options;
  options.limits.steps += kStepsOfMessage * conversation.messages.size();
  if (conversation.current_date) {
    options.unix_seconds = unix_seconds_of(*conversation.current_date);
  }
  bool has_tools = false;
  for (const Message& message : conversation.messages) {
    has_tools = has_tools || !message.developer.functions.empty();
  }
  Result<jinja::Text> text = (has_tools ? for_tools_ : plain_).render(variables, options);
  if (text.ok()) return text;
  return Error{.code = ErrorCode::kInvalidArgument,
               .message = fmt::format("the model's chat template does not take these messages, {}",
                                      text.error().message),
               .field = "messages"};
}

}  // namespace pelton::chat
