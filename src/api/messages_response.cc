#include "api/messages_response.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_writer.h"

namespace pelton::api {
namespace {

using base::JsonWriter;
using Kind = MessageBlock::Kind;

template <typename Write>
void append_event(std::string& out, std::string_view name, const Write& write) {
  out += "event: ";
  out += name;
  out += "\ndata: ";
  JsonWriter writer(out);
  writer.begin_object().key("type").string(name);
  write(writer);
  writer.end_object();
  out += "\n\n";
}

void write_message_usage(JsonWriter& writer, const Usage& usage) {
  writer.key("usage").begin_object();
  writer.key("input_tokens").integer(usage.prompt_tokens - usage.cached_tokens);
  writer.key("cache_creation_input_tokens").integer(0);
  writer.key("cache_read_input_tokens").integer(usage.cached_tokens);
  writer.key("output_tokens").integer(usage.completion_tokens);
  writer.end_object();
}

void write_stop(JsonWriter& writer, const MessageStop& stop) {
  const auto text_or_null = [&](std::string_view key, std::string_view text) {
    writer.key(key);
    if (text.empty()) {
      writer.null();
    } else {
      writer.string(text);
    }
  };
  text_or_null("stop_reason", stop.reason);
  text_or_null("stop_sequence", stop.stop_sequence);
}

void write_head(JsonWriter& writer, const MessageHead& head) {
  writer.key("id").string(head.id).key("type").string("message");
  writer.key("role").string("assistant").key("model").string(head.model);
}

// A tool's input is an object there. What is none still reaches the client: {"a":1} stays, nothing
// becomes {}, and {"a": (an answer that was cut short) {"raw_input":"{\"a\":"}.
void write_input(JsonWriter& writer, const std::string& sampled) {
  const Result<Json> input = Json::parse(sampled);
  if (input.ok() && input->is_object()) {
    writer.value(*input);
  } else if (sampled.empty()) {
    writer.begin_object().end_object();
  } else {
    writer.begin_object().key("raw_input").string(sampled).end_object();
  }
}

enum class Filled { kNo, kYes };

void write_block(JsonWriter& writer, const MessageBlock& block, Filled filled) {
  const std::string_view text = filled == Filled::kYes ? std::string_view(block.text) : "";
  writer.begin_object();
  switch (block.kind) {
    case Kind::kThinking:
      writer.key("type").string("thinking").key("thinking").string(text);
      writer.key("signature").string(filled == Filled::kYes ? block.signature : "");
      break;
    case Kind::kText:
      writer.key("type").string("text").key("text").string(text);
      break;
    case Kind::kToolUse:
      writer.key("type").string("tool_use").key("id").string(block.id);
      writer.key("name").string(block.name).key("input");
      write_input(writer, std::string(text));
      break;
  }
  writer.end_object();
}

std::string_view error_type(const ApiError& error) {
  switch (error.status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 408:
      return "timeout_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return error.status < 500 ? "invalid_request_error" : "api_error";
  }
}

// Word for word Anthropic's messages: clients find the numbers by regular expressions, and retry
// with fewer max_tokens or a shorter conversation. A prompt must leave room for one token.
std::string context_message(const ContextLength& length) {
  if (length.prompt_tokens >= length.context_max) {
    return fmt::format("prompt is too long: {} tokens > {} maximum", length.prompt_tokens,
                       length.context_max - 1);
  }
  return fmt::format(
      "input length and `max_tokens` exceed context limit: {} + {} > {}, decrease input length or "
      "`max_tokens` and try again",
      length.prompt_tokens, length.output_tokens, length.context_max);
}

void write_message_timings(JsonWriter& writer, const Timings* timings) {
  if (timings == nullptr) return;
  writer.key("timings");
  write_timings(writer, *timings);
}

}  // namespace

std::string message_body(const MessageHead& head, std::span<const MessageBlock> blocks,
                         const MessageEnd& end) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_object();
  write_head(writer, head);
  writer.key("content").begin_array();
  for (const MessageBlock& block : blocks) write_block(writer, block, Filled::kYes);
  writer.end_array();
  write_stop(writer, end.stop);
  write_message_usage(writer, end.usage);
  write_message_timings(writer, end.timings);
  writer.end_object();
  return body;
}

void append_message_start(const MessageHead& head, int64_t prompt_tokens, std::string& out) {
  append_event(out, "message_start", [&](JsonWriter& writer) {
    writer.key("message").begin_object();
    write_head(writer, head);
    writer.key("content").begin_array().end_array();
    write_stop(writer, {});
    write_message_usage(writer, {.prompt_tokens = prompt_tokens});
    writer.end_object();
  });
}

void append_block_start(size_t index, const MessageBlock& block, std::string& out) {
  append_event(out, "content_block_start", [&](JsonWriter& writer) {
    writer.key("index").integer(static_cast<int64_t>(index)).key("content_block");
    write_block(writer, block, Filled::kNo);
  });
}

void append_block_delta(size_t index, Kind kind, std::string_view text, std::string& out) {
  static constexpr std::string_view kNames[][2] = {
      {"thinking_delta", "thinking"}, {"text_delta", "text"}, {"input_json_delta", "partial_json"}};
  const auto& [type, field] = kNames[static_cast<size_t>(kind)];
  append_event(out, "content_block_delta", [&, type = type, field = field](JsonWriter& writer) {
    writer.key("index").integer(static_cast<int64_t>(index)).key("delta").begin_object();
    writer.key("type").string(type).key(field).string(text).end_object();
  });
}

void append_block_stop(size_t index, const MessageBlock& block, std::string& out) {
  const auto number = static_cast<int64_t>(index);
  if (block.kind == Kind::kThinking) {
    append_event(out, "content_block_delta", [&](JsonWriter& writer) {
      writer.key("index").integer(number).key("delta").begin_object();
      writer.key("type").string("signature_delta").key("signature").string(block.signature);
      writer.end_object();
    });
  }
  append_event(out, "content_block_stop",
               [&](JsonWriter& writer) { writer.key("index").integer(number); });
}

void append_message_end(const MessageEnd& end, std::string& out) {
  append_event(out, "message_delta", [&](JsonWriter& writer) {
    writer.key("delta").begin_object();
    write_stop(writer, end.stop);
    writer.end_object();
    write_message_usage(writer, end.usage);
    write_message_timings(writer, end.timings);
  });
  append_event(out, "message_stop", [](JsonWriter&) {});
}

std::string message_tokens_body(int64_t tokens) {
  std::string body;
  JsonWriter(body).begin_object().key("input_tokens").integer(tokens).end_object();
  return body;
}

std::string message_error_body(const ApiError& error, std::string_view request_id) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_object().key("type").string("error").key("error").begin_object();
  writer.key("type").string(error_type(error)).key("message");
  writer.string(error.context_length ? context_message(*error.context_length) : error.message);
  if (error.code == "unsupported" && error.param == "thread") {  // see messages_request.cc
    writer.key("details").begin_object().key("error_code").string("thread_unsupported_request");
    writer.key("unsupported").begin_array().string("thread").end_array().end_object();
  }
  writer.end_object().key("request_id").string(request_id).end_object();
  return body;
}

}  // namespace pelton::api
