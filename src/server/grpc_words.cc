#include "server/grpc_words.h"

#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_writer.h"

namespace pelton::server {
namespace {

using base::JsonWriter;

// Writes one body; the first thing that JSON cannot say sticks.
class Body {
 public:
  Body() : writer_(text_) { writer_.begin_object(); }

  JsonWriter& writer() { return writer_; }

  void text_if(std::string_view key, const std::string& value) {
    if (!value.empty()) writer_.key(key).string(value);
  }
  void integer_if(std::string_view key, bool has, int64_t value) {
    if (has) writer_.key(key).integer(value);
  }
  void number_if(std::string_view key, bool has, double value) {
    if (!has) return;
    if (!std::isfinite(value)) {
      refuse(key, fmt::format("'{}' must be finite", key));
    } else {
      writer_.key(key).number(value);
    }
  }
  // A part that is JSON in a text: a schema or the like.
  void json(std::string_view key, const std::string& path, const std::string& text) {
    const Result<Json> value = Json::parse(text);
    if (!value.ok()) return refuse(path, fmt::format("'{}': {}", path, value.error().message));
    writer_.key(key).value(*value);
  }

  void refuse(std::string_view field, std::string message) {
    if (!error_)
      error_ = Error{ErrorCode::kInvalidArgument, std::move(message), std::string(field)};
  }

  Result<std::string> finish() {
    if (error_) return *std::move(error_);
    writer_.end_object();
    return std::move(text_);
  }

 private:
  std::string text_;
  JsonWriter writer_;
  std::optional<Error> error_;
};

void write_ids(JsonWriter& writer, const v1::TokenIds& tokens) {
  writer.begin_array();
  for (const uint32_t id : tokens.ids()) writer.integer(id);
  writer.end_array();
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
  JsonWriter& writer = body.writer();
  if (sampling.ignore_eos()) writer.key("ignore_eos").boolean(true);
  if (sampling.logit_bias_size() > 0) {
    writer.key("logit_bias").begin_object();
    for (const auto& [token, bias] : sampling.logit_bias()) {
      // Not finite becomes null, which the validator refuses here.
      writer.key(std::to_string(token)).number(bias);
    }
    writer.end_object();
  }
  if (sampling.stop_size() > 0) {
    writer.key("stop").begin_array();
    for (const std::string& stop : sampling.stop()) writer.string(stop);
    writer.end_array();
  }
  if (sampling.stop_token_ids_size() > 0) {
    writer.key("stop_token_ids").begin_array();
    for (const int64_t id : sampling.stop_token_ids()) writer.integer(id);
    writer.end_array();
  }
}

void write_message(JsonWriter& writer, const v1::Message& message) {
  writer.begin_object().key("role").string(message.role());
  const bool calls = message.tool_calls_size() > 0 || !message.reasoning().empty();
  if (!message.content().empty() || !calls) writer.key("content").string(message.content());
  if (!message.name().empty()) writer.key("name").string(message.name());
  if (!message.reasoning().empty()) writer.key("reasoning").string(message.reasoning());
  if (!message.tool_call_id().empty()) writer.key("tool_call_id").string(message.tool_call_id());
  if (message.tool_calls_size() > 0) {
    writer.key("tool_calls").begin_array();
    for (const v1::ToolCall& call : message.tool_calls()) {
      writer.begin_object().key("id").string(call.id()).key("type").string("function");
      writer.key("function").begin_object().key("name").string(call.name());
      writer.key("arguments").string(call.arguments()).end_object().end_object();
    }
    writer.end_array();
  }
  writer.end_object();
}

void write_tools(Body& body, const v1::Chat& chat) {
  JsonWriter& writer = body.writer();
  writer.key("tools").begin_array();
  for (int i = 0; i < chat.tools_size(); ++i) {
    const v1::Tool& tool = chat.tools(i);
    writer.begin_object().key("type").string("function").key("function").begin_object();
    writer.key("name").string(tool.name());
    if (!tool.description().empty()) writer.key("description").string(tool.description());
    if (!tool.parameters().empty()) {
      body.json("parameters", fmt::format("tools[{}].parameters", i), tool.parameters());
    }
    if (tool.strict()) writer.key("strict").boolean(true);
    writer.end_object().end_object();
  }
  writer.end_array();
}

void write_chat(Body& body, const v1::Chat& chat) {
  JsonWriter& writer = body.writer();
  writer.key("messages").begin_array();
  for (const v1::Message& message : chat.messages()) write_message(writer, message);
  writer.end_array();
  if (chat.tools_size() > 0) write_tools(body, chat);
  const std::string& choice = chat.tool_choice();
  if (choice == "auto" || choice == "none" || choice == "required") {
    writer.key("tool_choice").string(choice);
  } else if (!choice.empty()) {
    writer.key("tool_choice").begin_object().key("type").string("function");
    writer.key("function").begin_object().key("name").string(choice).end_object().end_object();
  }
  body.text_if("reasoning_effort", chat.reasoning_effort());
}

void write_response_format(Body& body, const v1::ResponseFormat& format) {
  JsonWriter& writer = body.writer();
  writer.key("response_format").begin_object().key("type").string(format.type());
  if (format.type() == "json_schema") {
    writer.key("json_schema").begin_object().key("name").string(format.name());
    body.text_if("description", format.description());
    body.json("schema", "response_format.schema", format.schema());
    writer.end_object();
  }
  writer.end_object();
}

void write_structured_outputs(Body& body, const v1::StructuredOutputs& outputs) {
  using Constraint = v1::StructuredOutputs::ConstraintCase;
  JsonWriter& writer = body.writer();
  writer.key("structured_outputs").begin_object();
  switch (outputs.constraint_case()) {
    case Constraint::kJson:
      body.json("json", "structured_outputs.json", outputs.json());
      break;
    case Constraint::kRegex:
      writer.key("regex").string(outputs.regex());
      break;
    case Constraint::kChoice:
      writer.key("choice").begin_array();
      for (const std::string& text : outputs.choice().texts()) writer.string(text);
      writer.end_array();
      break;
    case Constraint::kGrammar:
      writer.key("grammar").string(outputs.grammar());
      break;
    case Constraint::kJsonObject:
      writer.key("json_object").boolean(outputs.json_object());
      break;
    case Constraint::kStructuralTag:
      body.json("structural_tag", "structured_outputs.structural_tag", outputs.structural_tag());
      break;
    case Constraint::CONSTRAINT_NOT_SET:
      break;  // which the validator refuses
  }
  writer.end_object();
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

Result<std::string> chat_body(const v1::GenerateRequest& request) {
  Body body;
  write_origin(body, request);
  write_chat(body, request.chat());
  write_formats(body, request);
  write_sampling(body, request.sampling());
  if (request.sampling().has_logprobs()) {
    body.writer().key("logprobs").boolean(true);
    body.writer().key("top_logprobs").integer(request.sampling().logprobs());
  }
  return body.finish();
}

Result<std::string> completion_body(const v1::GenerateRequest& request) {
  Body body;
  write_origin(body, request);
  body.writer().key("prompt").string(request.text());
  write_formats(body, request);
  write_sampling(body, request.sampling());
  body.integer_if("logprobs", request.sampling().has_logprobs(), request.sampling().logprobs());
  return body.finish();
}

Result<std::string> tokens_body(const v1::GenerateRequest& request) {
  Body body;
  write_origin(body, request);
  write_ids(body.writer().key("token_ids"), request.tokens());
  write_formats(body, request);
  body.writer().key("sampling_params").begin_object();
  write_sampling(body, request.sampling());
  body.integer_if("logprobs", request.sampling().has_logprobs(), request.sampling().logprobs());
  body.writer().end_object();
  return body.finish();
}

Result<std::string> tokenize_body(const v1::TokenizeRequest& request) {
  Body body;
  body.text_if("model", request.model());
  if (request.has_chat()) {
    write_chat(body, request.chat());
  } else if (request.has_text()) {
    body.writer().key("prompt").string(request.text());
  }
  return body.finish();
}

Result<std::string> embedding_body(const v1::EmbedRequest& request) {
  Body body;
  body.text_if("model", request.model());
  JsonWriter& writer = body.writer();
  writer.key("input").begin_array();
  for (const v1::EmbedInput& input : request.inputs()) {
    if (input.has_tokens()) {
      write_ids(writer, input.tokens());
    } else {
      writer.string(input.text());
    }
  }
  writer.end_array();
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
