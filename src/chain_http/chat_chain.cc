#include "chain_http/chat_chain.h"

#include <utility>

#include <fmt/format.h>

#include "api/chat_message.h"
#include "api/chat_response.h"
#include "api/fields.h"
#include "api/json_object.h"
#include "net/sse.h"

namespace pelton::chain_http {
namespace {

using chain::Template;
using chain::Type;

std::string_view role_name(api::ChatRole role) {
  switch (role) {
    case api::ChatRole::kSystem:
      return "system";
    case api::ChatRole::kDeveloper:
      return "developer";
    case api::ChatRole::kUser:
      return "user";
    case api::ChatRole::kAssistant:
      return "assistant";
    case api::ChatRole::kTool:
      return "tool";
  }
  return "";
}

Json messages_input(const std::vector<api::ChatMessage>& messages) {
  Json::Array all;
  for (const api::ChatMessage& message : messages) {
    Json one{Json::Object{}};
    one.set("role", role_name(message.role));
    one.set("content", message.content);
    all.push_back(std::move(one));
  }
  return Json(std::move(all));
}

// Whether the text of the output is the text that is streamed.
bool streams_its_output(const chain::Chain& chain) {
  const Template* const text = chain.output.find("text");
  if (!chain.stream_from || text == nullptr || text->kind != Template::Kind::kExpression) {
    return false;
  }
  const chain::Expression& path = text->expression;
  return path.kind == chain::Expression::Kind::kPath &&
         path.name == chain.steps[*chain.stream_from].name && path.parts.size() == 1 &&
         path.parts[0].field == "text";
}

class ChatWriter final : public RunWriter {
 public:
  ChatWriter(const chain::Chain& chain, const ChatHead& head)
      : head_{.id = head.id,
              .created = head.created_s,
              .model = fmt::format("{}{}", kChainModelPrefix, chain.name),
              .reasoning_field = {}},
        chunks_(head_, head.include_usage),
        include_usage_(head.include_usage),
        streams_(streams_its_output(chain)) {}

  void event(const chain::RunEvent& event, std::string& out) override {
    if (streams_ && event.kind == chain::RunEvent::Kind::kText) content(event.text, out);
  }
  void end(const chain::ChainRun& run, std::string& out) override {
    if (!streams_ || !begun_) content(text_of(run), out);
    std::string chunk;
    chunks_.finish(0, "stop", {}, chunk);
    net::append_sse_data(out, chunk);
    if (!include_usage_) return;
    chunk.clear();
    const api::Usage usage = usage_of(run);
    chunks_.last(&usage, nullptr, chunk);
    net::append_sse_data(out, chunk);
  }
  std::string body(const chain::ChainRun& run) override {
    api::ChatChoice choice;
    choice.content = text_of(run);
    choice.finish_reason = "stop";
    return api::chat_answer_body(head_, {&choice, 1}, usage_of(run), {});
  }

 private:
  static std::string text_of(const chain::ChainRun& run) {
    return run.output().string("text").value_or("");
  }
  static api::Usage usage_of(const chain::ChainRun& run) {
    api::Usage usage;
    usage.prompt_tokens = run.usage().prompt_tokens;
    usage.completion_tokens = run.usage().completion_tokens;
    return usage;
  }
  void content(std::string_view text, std::string& out) {
    api::ChatDelta delta;
    delta.role = !std::exchange(begun_, true);
    delta.content = text;
    std::string chunk;
    chunks_.delta(delta, chunk);
    net::append_sse_data(out, chunk);
  }

  const api::ChatAnswerHead head_;
  const api::ChatChunks chunks_;
  const bool include_usage_;
  const bool streams_;
  bool begun_ = false;
};

}  // namespace

std::optional<std::string> chat_input_field(const chain::Chain& chain) {
  const Type text = Type::of(Type::Kind::kText);
  const Type::Field* field = nullptr;
  for (const Type::Field& one : chain.input) {
    if (one.type.optional) continue;
    if (field != nullptr) return std::nullopt;
    field = &one;
  }
  bool has_text = false;
  for (const Type::Field& one : chain.output_types) {
    has_text = has_text || (one.name == "text" && accepts(text, one.type));
  }
  if (field == nullptr || !has_text) return std::nullopt;
  const bool is_messages = field->name == "messages" && field->type.kind == Type::Kind::kList &&
                           accepts(*field->type.item, Type::of(Type::Kind::kObject));
  if (!is_messages && field->type.kind != Type::Kind::kText) return std::nullopt;
  return field->name;
}

Result<ChatChainRequest> parse_chat_chain_request(std::string_view body,
                                                  const chain::Chain& chain) {
  const std::optional<std::string> field = chat_input_field(chain);
  if (!field) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the chain '{}' is no chat: it has not one string or 'messages' as "
                             "its input and a string 'text' as its output; POST /v1/chains/{}",
                             chain.name, chain.name),
                 "model"};
  }
  TRY_ASSIGN(const Json json, api::parse_object(body));
  std::optional<Error> complaint;
  const api::Fields fields(json, "", complaint, api::Fields::Reads::kKept);
  ChatChainRequest request;
  static_cast<void>(fields.find("model"));
  request.stream = fields.boolean("stream").value_or(false);
  request.timeout_s = api::read_timeout(fields);
  if (const Json* const options = fields.object("stream_options")) {
    request.include_usage = options->boolean("include_usage").value_or(false);
  }
  const std::vector<api::ChatMessage> messages = api::read_messages(fields);
  if (complaint) return std::move(*complaint);
  fields.unread([&](const std::string& key, const Json&) { request.ignored.push_back(key); });
  request.input = Json{Json::Object{}};
  if (*field == "messages") {
    request.input.set(*field, messages_input(messages));
    return request;
  }
  for (auto message = messages.rbegin(); message != messages.rend(); ++message) {
    if (message->role != api::ChatRole::kUser) continue;
    request.input.set(*field, message->content);
    return request;
  }
  return Error{ErrorCode::kInvalidArgument, "'messages' has no message of the user", "messages"};
}

std::unique_ptr<RunWriter> make_chat_writer(const chain::Chain& chain, const ChatHead& head) {
  return std::make_unique<ChatWriter>(chain, head);
}

}  // namespace pelton::chain_http
