#include "api/messages_request.h"

#include <utility>

#include <fmt/format.h>

#include "api/documented_fields.h"
#include "api/json_object.h"
#include "api/messages_content.h"
#include "api/messages_tool.h"

namespace pelton::api {
namespace {

constexpr size_t kModelBytesMax = 512;
// "thinking" comes with a number of tokens; the model knows three efforts.
constexpr int64_t kBudgetMin = 1024;
constexpr int64_t kMediumBudgetMin = 4096;
constexpr int64_t kHighBudgetMin = 16384;

ReasoningEffort effort_of_budget(int64_t tokens) {
  if (tokens >= kHighBudgetMin) return ReasoningEffort::kHigh;
  return tokens >= kMediumBudgetMin ? ReasoningEffort::kMedium : ReasoningEffort::kLow;
}

using Thinking = MessagesRequest::Thinking;

Thinking read_display(const Fields& thinking) {
  const std::string* display = thinking.text("display", 64);
  if (display == nullptr || *display == "summarized") return Thinking::kShown;
  // "updates" are short reports between blocks of thinking; this model writes none.
  if (*display != "omitted" && *display != "updates") {
    thinking.refuse("display", fmt::format("'{}' must be 'summarized', 'omitted' or 'updates'",
                                           thinking.path("display")));
  }
  return Thinking::kOmitted;
}

void read_thinking(const Fields& body, MessagesRequest& request) {
  const Json* thinking = body.object("thinking");
  if (thinking == nullptr) return;
  const Fields fields(*thinking, "thinking", body.complaint());
  const std::string* type = fields.text("type", 64);
  if (fields.failed()) return;
  if (type != nullptr && *type == "adaptive") {
    request.thinking = read_display(fields);
  } else if (type != nullptr && *type == "disabled") {
    // It cannot be switched off; the least there is.
    request.chat.reasoning_effort = ReasoningEffort::kLow;
  } else if (type != nullptr && *type == "enabled") {
    request.thinking = read_display(fields);
    const auto budget = fields.integer("budget_tokens", {.low = kBudgetMin});
    if (!budget) {
      fields.refuse("budget_tokens", fmt::format("'{}' is missing", fields.path("budget_tokens")));
      return;
    }
    const std::optional<int64_t>& max_tokens = request.chat.generation.max_tokens;
    if (max_tokens && *budget >= *max_tokens) {
      fields.refuse("budget_tokens", fmt::format("'{}' is {}; it must be less than 'max_tokens'",
                                                 fields.path("budget_tokens"), *budget));
    }
    request.chat.reasoning_effort = effort_of_budget(*budget);
  } else {
    fields.refuse("type", fmt::format("'{}' must be 'enabled', 'adaptive' or 'disabled'",
                                      fields.path("type")));
  }
}

// output_config.format: {"type": "json_schema", "schema": …}; output_format is its older name.
void read_format(const Fields& body, ChatRequest& chat) {
  const Json* config = body.object("output_config");
  std::optional<OutputFormat> format;
  if (config != nullptr) {
    format = read_message_format(Fields(*config, "output_config", body.complaint()), "format");
  }
  if (!format) format = read_message_format(body, "output_format");
  if (!format) return;
  if (chat.generation.format) {
    refuse_two_formats(body, format->field, chat.generation.format->field);
  }
  chat.generation.format = std::move(format);
}

// metadata.user_id is whom the caller asks for, unless an OpenAI field says so.
void read_user(const Fields& body, ChatRequest& chat) {
  const Json* metadata = body.object("metadata");
  if (metadata == nullptr || !chat.generation.user.empty()) return;
  const Fields fields(*metadata, "metadata", body.complaint());
  if (const std::string* user = fields.text("user_id", 512)) chat.generation.user = *user;
}

void read_lengths(const Fields& body, MessagesUse use, ChatRequest& chat) {
  if (!chat.generation.max_tokens && use == MessagesUse::kGenerate) {
    body.refuse("max_tokens", "'max_tokens' is missing");
  }
  if (chat.generation.n != 1) {
    body.refuse("n", "'n' must be 1: a message has one answer");
  }
}

// Tools that a server of theirs would run.
void refuse_servers(const Fields& body) {
  const Json* servers = body.array("mcp_servers", 64);
  if (servers == nullptr || servers->as_array().empty()) return;
  body.refuse_unsupported("mcp_servers", "calling tools by the server");
}

// Where it is computed is a promise about data, which is not ours to make; a container of theirs
// has files and skills that are not here.
void refuse_promises(const Fields& body) {
  for (const std::string_view key : {"inference_geo", "container"}) {
    if (body.find(key) != nullptr) body.refuse_unsupported(key, "this field");
  }
}

// A conversation kept by the server. Refused by a code of its own: their client then sends all of
// it each time, as it does to servers that know no threads.
void refuse_threads(const Fields& body) {
  if (body.find("thread") == nullptr || body.failed()) return;
  body.complaint() =
      Error{ErrorCode::kUnsupported,
            "'thread': conversations that the server keeps are not supported; send all messages",
            "thread"};
}

}  // namespace

Result<MessagesRequest> parse_messages_request(std::string_view body, const RequestLimits& limits,
                                               MessagesUse use) {
  TRY_ASSIGN(const Json json, parse_object(body));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept);
  refuse_threads(fields);
  MessagesRequest request;
  ChatRequest& chat = request.chat;
  if (const std::string* model = fields.text("model", kModelBytesMax)) chat.model = *model;
  chat.instructions = InstructionsPlace::kWhereSaid;
  MessageTurns turns = read_message_turns(fields);
  chat.messages = std::move(turns.messages);
  ToolFields tools = read_message_tools(fields, chat.messages);
  chat.tools = std::move(tools.functions);
  chat.declared_functions = std::move(tools.declared);
  chat.forced_call = std::move(tools.forced_call);
  chat.parallel_calls = tools.parallel_calls;
  chat.warnings = std::move(turns.warnings);
  chat.warnings.insert(chat.warnings.end(), tools.warnings.begin(), tools.warnings.end());

  chat.generation = read_generation_fields(fields, limits);
  read_format(fields, chat);
  read_stop_strings(fields, "stop_sequences", chat.generation);
  read_lengths(fields, use, chat);
  read_thinking(fields, request);
  if (const auto effort = read_config_effort(fields)) chat.reasoning_effort = effort;
  if (turns.effort) chat.reasoning_effort = turns.effort;
  read_user(fields, chat);
  refuse_servers(fields);
  refuse_promises(fields);
  check_unread_fields(fields, Output::kText, chat.warnings);
  if (complaint) return std::move(*complaint);
  return request;
}

}  // namespace pelton::api
