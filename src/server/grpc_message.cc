#include "server/grpc_message.h"

#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "api/json_object.h"
#include "base/json_visitor.h"

namespace pelton::server {
namespace {

// Builds one body's tree; the first thing that it cannot be sticks. Never more values than a body
// over HTTP may have.
class Body {
 public:
  Body() { begin_object(); }

  Body& key(std::string_view name) { return error_ ? *this : keep(tree_.key(name)); }
  Body& begin_object() { return error_ ? *this : keep(tree_.begin_object()); }
  Body& end_object() { return error_ ? *this : keep(tree_.end_object()); }
  Body& begin_array() { return error_ ? *this : keep(tree_.begin_array()); }
  Body& end_array() { return error_ ? *this : keep(tree_.end_array()); }
  Body& string(std::string_view value) { return error_ ? *this : keep(tree_.string(value)); }
  Body& integer(int64_t value) { return error_ ? *this : keep(tree_.integer(value)); }
  Body& boolean(bool value) { return error_ ? *this : keep(tree_.other(Json(value))); }
  // Not finite becomes null, which the validator refuses.
  Body& number(double value) {
    return error_ ? *this : keep(tree_.other(std::isfinite(value) ? Json(value) : Json()));
  }

  void text_if(std::string_view name, const std::string& value) {
    if (!value.empty()) key(name).string(value);
  }
  void integer_if(std::string_view name, bool has, int64_t value) {
    if (has) key(name).integer(value);
  }
  void number_if(std::string_view name, bool has, double value) {
    if (!has) return;
    if (!std::isfinite(value)) {
      refuse(name, fmt::format("'{}' must be finite", name));
    } else {
      key(name).number(value);
    }
  }
  // A part that is JSON in a text: a schema or the like.
  void json(std::string_view name, const std::string& path, const std::string& text) {
    key(name);
    if (error_) return;  // behind one the tree is half a tree
    const Result<void> read = base::visit_json(text, tree_);
    if (read.ok()) return;
    if (read.error().code == ErrorCode::kCancelled) return refuse_size();
    refuse(path, fmt::format("'{}': {}", path, read.error().message));
  }

  void refuse(std::string_view field, std::string message) {
    if (!error_)
      error_ = Error{ErrorCode::kInvalidArgument, std::move(message), std::string(field)};
  }

  Result<Json> finish() {
    end_object();
    if (error_) return *std::move(error_);
    Json body = tree_.take();
    if (std::optional<Error> twice = api::check_object(body)) return *std::move(twice);
    return body;
  }

 private:
  Body& keep(bool fits) {
    if (!fits) refuse_size();
    return *this;
  }
  void refuse_size() {
    refuse("", fmt::format("a message of more than {} values", Json::kValuesMax));
  }

  base::JsonBuilder tree_{Json::kValuesMax};
  std::optional<Error> error_;
};

void write_ids(Body& body, const v1::TokenIds& tokens) {
  body.begin_array();
  for (const uint32_t id : tokens.ids()) body.integer(id);
  body.end_array();
}

void write_sampling(Body& body, const v1::Sampling& sampling) {
  body.number_if("temperature", sampling.has_temperature(), sampling.temperature());
  body.number_if("top_p", sampling.has_top_p(), sampling.top_p());
  body.integer_if("top_k", sampling.has_top_k(), sampling.top_k());
  body.number_if("min_p", sampling.has_min_p(), sampling.min_p());
  body.number_if("repetition_penalty", sampling.has_repetition_penalty(),
                 sampling.repetition_penalty());
  body.number_if("frequency_penalty", sampling.has_frequency_penalty(),
                 sampling.frequency_penalty());
  body.number_if("presence_penalty", sampling.has_presence_penalty(), sampling.presence_penalty());
  body.integer_if("seed", sampling.has_seed(), sampling.seed());
  body.integer_if("max_tokens", sampling.has_max_tokens(), sampling.max_tokens());
  body.integer_if("min_tokens", sampling.has_min_tokens(), sampling.min_tokens());
  body.integer_if("prompt_logprobs", sampling.has_prompt_logprobs(), sampling.prompt_logprobs());
  if (sampling.ignore_eos()) body.key("ignore_eos").boolean(true);
  if (sampling.logit_bias_size() > 0) {
    body.key("logit_bias").begin_object();
    for (const auto& [token, bias] : sampling.logit_bias()) {
      body.key(std::to_string(token)).number(bias);
    }
    body.end_object();
  }
  if (sampling.stop_size() > 0) {
    body.key("stop").begin_array();
    for (const std::string& stop : sampling.stop()) body.string(stop);
    body.end_array();
  }
  if (sampling.stop_token_ids_size() > 0) {
    body.key("stop_token_ids").begin_array();
    for (const int64_t id : sampling.stop_token_ids()) body.integer(id);
    body.end_array();
  }
}

void write_message(Body& body, const v1::Message& message) {
  body.begin_object().key("role").string(message.role());
  const bool calls = message.tool_calls_size() > 0 || !message.reasoning().empty();
  if (!message.content().empty() || !calls) body.key("content").string(message.content());
  if (!message.name().empty()) body.key("name").string(message.name());
  if (!message.reasoning().empty()) body.key("reasoning").string(message.reasoning());
  if (!message.tool_call_id().empty()) body.key("tool_call_id").string(message.tool_call_id());
  if (message.tool_calls_size() > 0) {
    body.key("tool_calls").begin_array();
    for (const v1::ToolCall& call : message.tool_calls()) {
      body.begin_object().key("id").string(call.id()).key("type").string("function");
      body.key("function").begin_object().key("name").string(call.name());
      body.key("arguments").string(call.arguments()).end_object().end_object();
    }
    body.end_array();
  }
  body.end_object();
}

void write_tools(Body& body, const v1::Chat& chat) {
  body.key("tools").begin_array();
  for (int i = 0; i < chat.tools_size(); ++i) {
    const v1::Tool& tool = chat.tools(i);
    body.begin_object().key("type").string("function").key("function").begin_object();
    body.key("name").string(tool.name());
    if (!tool.description().empty()) body.key("description").string(tool.description());
    if (!tool.parameters().empty()) {
      body.json("parameters", fmt::format("tools[{}].parameters", i), tool.parameters());
    }
    if (tool.strict()) body.key("strict").boolean(true);
    body.end_object().end_object();
  }
  body.end_array();
}

void write_chat(Body& body, const v1::Chat& chat) {
  body.key("messages").begin_array();
  for (const v1::Message& message : chat.messages()) write_message(body, message);
  body.end_array();
  if (chat.tools_size() > 0) write_tools(body, chat);
  const std::string& choice = chat.tool_choice();
  if (choice == "auto" || choice == "none" || choice == "required") {
    body.key("tool_choice").string(choice);
  } else if (!choice.empty()) {
    body.key("tool_choice").begin_object().key("type").string("function");
    body.key("function").begin_object().key("name").string(choice).end_object().end_object();
  }
  body.text_if("reasoning_effort", chat.reasoning_effort());
}

void write_response_format(Body& body, const v1::ResponseFormat& format) {
  body.key("response_format").begin_object().key("type").string(format.type());
  if (format.type() == "json_schema") {
    body.key("json_schema").begin_object().key("name").string(format.name());
    body.text_if("description", format.description());
    body.json("schema", "response_format.schema", format.schema());
    body.end_object();
  }
  body.end_object();
}

void write_structured_outputs(Body& body, const v1::StructuredOutputs& outputs) {
  using Constraint = v1::StructuredOutputs::ConstraintCase;
  body.key("structured_outputs").begin_object();
  switch (outputs.constraint_case()) {
    case Constraint::kJson:
      body.json("json", "structured_outputs.json", outputs.json());
      break;
    case Constraint::kRegex:
      body.key("regex").string(outputs.regex());
      break;
    case Constraint::kChoice:
      body.key("choice").begin_array();
      for (const std::string& text : outputs.choice().texts()) body.string(text);
      body.end_array();
      break;
    case Constraint::kGrammar:
      body.key("grammar").string(outputs.grammar());
      break;
    case Constraint::kJsonObject:
      body.key("json_object").boolean(outputs.json_object());
      break;
    case Constraint::kStructuralTag:
      body.json("structural_tag", "structured_outputs.structural_tag", outputs.structural_tag());
      break;
    case Constraint::CONSTRAINT_NOT_SET:
      break;  // which the validator refuses
  }
  body.end_object();
}

// Also where the prompt is tokens: the validator refuses them there.
void write_formats(Body& body, const v1::GenerateRequest& request) {
  if (request.has_response_format()) write_response_format(body, request.response_format());
  if (request.has_structured_outputs()) {
    write_structured_outputs(body, request.structured_outputs());
  }
}

void write_origin(Body& body, const v1::GenerateRequest& request) {
  body.text_if("model", request.model());
  body.integer_if("priority", request.has_priority(), request.priority());
  body.text_if("user", request.user());
  body.text_if("cache_salt", request.cache_salt());
}

}  // namespace

Result<Json> chat_body(const v1::GenerateRequest& request) {
  Body body;
  write_origin(body, request);
  write_chat(body, request.chat());
  write_formats(body, request);
  write_sampling(body, request.sampling());
  if (request.sampling().has_logprobs()) {
    body.key("logprobs").boolean(true);
    body.key("top_logprobs").integer(request.sampling().logprobs());
  }
  return body.finish();
}

Result<Json> completion_body(const v1::GenerateRequest& request) {
  Body body;
  write_origin(body, request);
  body.key("prompt").string(request.text());
  write_formats(body, request);
  write_sampling(body, request.sampling());
  body.integer_if("logprobs", request.sampling().has_logprobs(), request.sampling().logprobs());
  return body.finish();
}

Result<Json> tokens_body(const v1::GenerateRequest& request) {
  Body body;
  write_origin(body, request);
  write_ids(body.key("token_ids"), request.tokens());
  write_formats(body, request);
  body.key("sampling_params").begin_object();
  write_sampling(body, request.sampling());
  body.integer_if("logprobs", request.sampling().has_logprobs(), request.sampling().logprobs());
  body.end_object();
  return body.finish();
}

Result<Json> tokenize_body(const v1::TokenizeRequest& request) {
  Body body;
  body.text_if("model", request.model());
  if (request.has_chat()) {
    write_chat(body, request.chat());
  } else if (request.has_text()) {
    body.key("prompt").string(request.text());
  }
  return body.finish();
}

Result<Json> embedding_body(const v1::EmbedRequest& request) {
  Body body;
  body.text_if("model", request.model());
  body.key("input").begin_array();
  for (const v1::EmbedInput& input : request.inputs()) {
    if (input.has_tokens()) {
      write_ids(body, input.tokens());
    } else {
      body.string(input.text());
    }
  }
  body.end_array();
  body.integer_if("dimensions", request.has_dimensions(), request.dimensions());
  body.text_if("pooling", request.pooling());
  body.integer_if("priority", request.has_priority(), request.priority());
  body.text_if("user", request.user());
  body.text_if("cache_salt", request.cache_salt());
  return body.finish();
}

api::ApiError in_proto_words(api::ApiError error, std::initializer_list<ProtoWord> words) {
  for (const ProtoWord& word : words) {
    const std::string field = error.param;
    if (!field.starts_with(word.ours)) continue;
    const std::string_view rest = std::string_view(field).substr(word.ours.size());
    if (!rest.empty() && rest[0] != '.' && rest[0] != '[') continue;
    error.param = std::string(word.theirs) + std::string(rest);
    // Its words have the name in quotes.
    const std::string quoted = "'" + field + "'";
    const size_t at = error.message.find(quoted);
    if (at != std::string::npos) {
      error.message.replace(at, quoted.size(), "'" + error.param + "'");
    }
    return error;
  }
  return error;
}

}  // namespace pelton::server
