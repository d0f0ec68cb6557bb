#include "api/messages_request.h"

#include <utility>

#include <fmt/format.h>

#include "api/documented_fields.h"
#include "api/json_object.h"
#include "api/messages_block.h"
#include "api/messages_content.h"
#include "api/messages_tool.h"

namespace pelton::api {
namespace {

constexpr size_t kModelBytesMax = 512;

void apply_thinking(const Fields& body, MessagesRequest& request) {
  const std::optional<ThinkingFields> thinking = read_thinking(body);
  if (!thinking) return;
  using Type = ThinkingFields::Type;
  using Shown = MessagesRequest::Thinking;
  if (thinking->effort) request.chat.reasoning_effort = thinking->effort;
  if (thinking->type == Type::kDisabled) {
    request.chat.thinks = false;
    request.chat.thinks_field = "thinking.type";
  } else {
    request.thinking = thinking->omitted ? Shown::kOmitted : Shown::kShown;
  }
  const std::optional<int64_t>& budget = thinking->budget_tokens;
  if (thinking->type == Type::kEnabled && !budget) {
    body.refuse("thinking.budget_tokens", "'thinking.budget_tokens' is missing");
  }
  apply_thinking_budget(body, *thinking, request.chat.generation.thinking_budget);
  const std::optional<int64_t>& max_tokens = request.chat.generation.max_tokens;
  if (budget && max_tokens && *budget >= *max_tokens) {
    body.refuse(
        "thinking.budget_tokens",
        fmt::format("'thinking.budget_tokens' is {}; it must be less than 'max_tokens'", *budget));
  }
}

// output_config.format: {"type": "json_schema", "schema": …}; output_format is its older name.
void read_format(const Fields& body, ChatRequest& chat) {
  const Json* config = body.object("output_config");
  std::optional<OutputFormat> formats[2];
  if (config != nullptr) {
    formats[0] = read_message_format(Fields(*config, "output_config", body.complaint()), "format");
  }
  formats[1] = read_message_format(body, "output_format");
  for (std::optional<OutputFormat>& format : formats) {
    if (!format) continue;
    std::optional<OutputFormat>& read = chat.generation.format;
    if (read) refuse_two_formats(body, format->field, read->field);
    read = std::move(format);
  }
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
    body.refuse("max_tokens", body.find("max_tokens") == nullptr
                                  ? "'max_tokens' is missing"
                                  : "'max_tokens' must be at least 1");
  }
  if (chat.generation.n != 1) {
    body.refuse("n", "'n' must be 1: a message has one answer");
  }
}

// Anthropic's prefill: an answer goes on with what the last message, the assistant's, says.
void read_prefill(const Fields& body, ChatRequest& chat) {
  if (chat.messages.empty()) return;
  const ChatMessage& last = chat.messages.back();
  chat.continues_last = last.role == ChatRole::kAssistant;
  const Json* const thinking = chat.continues_last ? body.object("thinking") : nullptr;
  if (thinking == nullptr || thinking->string("type") == "disabled") return;
  body.refuse("thinking",
              "'thinking' and a last message of the assistant's exclude each other: an answer that "
              "has begun does not think first");
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

// Hints about price and speed that change no answer here; Anthropic's words only, as a slip would
// go unseen.
void check_hints(const Fields& body) {
  static constexpr std::string_view kTiers[] = {"auto", "standard_only"};
  static constexpr std::string_view kSpeeds[] = {"standard", "fast"};
  check_word(body, "service_tier", kTiers);
  check_word(body, "speed", kSpeeds);
  check_cache_control(body);
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
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
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
  check_beside_forced_call(fields, chat.generation.format, chat.forced_call.has_value());
  read_format(fields, chat);
  read_stop_strings(fields, "stop_sequences", chat.generation);
  read_lengths(fields, use, chat);
  apply_thinking(fields, request);
  read_prefill(fields, chat);
  if (const auto effort = read_config_effort(fields)) chat.reasoning_effort = effort;
  if (turns.effort) chat.reasoning_effort = turns.effort;
  read_user(fields, chat);
  refuse_servers(fields);
  refuse_promises(fields);
  check_hints(fields);
  check_unread_fields(fields, BodyKind::kMessages, limits.unknown_fields, chat.warnings);
  if (complaint) return std::move(*complaint);
  return request;
}

}  // namespace pelton::api
