#include "api/chat_response.h"

#include "base/json_writer.h"

namespace pelton::api {
namespace {

using base::JsonWriter;

void write_head(JsonWriter& writer, const ChatAnswerHead& head, std::string_view object) {
  writer.key("id").string(head.id);
  writer.key("object").string(object);
  writer.key("created").integer(head.created);
  writer.key("model").string(head.model);
}

void write_message(JsonWriter& writer, const ChatAnswerHead& head, const ChatChoice& answer) {
  writer.begin_object().key("role").string("assistant").key("content");
  if (answer.content) {
    writer.string(*answer.content);
  } else {
    writer.null();
  }
  writer.key("refusal").null();
  if (answer.reasoning && !head.reasoning_field.empty()) {
    writer.key(head.reasoning_field).string(*answer.reasoning);
  }
  if (!answer.tool_calls.empty() && head.legacy_calls) {
    const ChatToolCall& call = answer.tool_calls.front();
    writer.key("function_call").begin_object();
    writer.key("name").string(call.name).key("arguments").string(call.arguments).end_object();
  } else if (!answer.tool_calls.empty()) {
    writer.key("tool_calls").begin_array();
    for (const ChatToolCall& call : answer.tool_calls) {
      writer.begin_object().key("id").string(call.id).key("type").string("function");
      writer.key("function").begin_object();
      writer.key("name").string(call.name).key("arguments").string(call.arguments);
      writer.end_object().end_object();
    }
    writer.end_array();
  }
  writer.end_object();
}

constexpr std::string_view kFirstChoice = "[{\"index\":0,\"delta\":{";
constexpr std::string_view kPlainEnd = "},\"logprobs\":null,\"finish_reason\":null}]";

std::string chunk_head(const ChatAnswerHead& head) {
  std::string text;
  JsonWriter writer(text);
  writer.begin_object();
  write_head(writer, head, "chat.completion.chunk");
  writer.key("choices");
  return text;
}

void write_called_function(JsonWriter& writer, const ChatToolCallDelta& call) {
  writer.begin_object();
  if (!call.name.empty()) writer.key("name").string(call.name);
  writer.key("arguments").string(call.arguments).end_object();
}

void append_tool_call(const ChatToolCallDelta& call, std::string& out) {
  JsonWriter writer(out);
  writer.begin_object().key("index").integer(call.index);
  if (!call.id.empty()) writer.key("id").string(call.id).key("type").string("function");
  write_called_function(writer.key("function"), call);
  writer.end_object();
}

}  // namespace

std::string chat_answer_body(const ChatAnswerHead& head, std::span<const ChatChoice> choices,
                             const Usage& usage, const ChatAnswerExtras& extras) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_object();
  write_head(writer, head, "chat.completion");
  writer.key("choices").begin_array();
  for (size_t i = 0; i < choices.size(); ++i) {
    writer.begin_object().key("index").integer(static_cast<int64_t>(i)).key("message");
    write_message(writer, head, choices[i]);
    writer.key("logprobs");
    if (choices[i].logprobs) {
      write_chat_logprobs(writer, *choices[i].logprobs);
    } else {
      writer.null();
    }
    writer.key("finish_reason").string(choices[i].finish_reason);
    writer.key("stop_reason");
    write_stop_reason(writer, choices[i].stop_reason);
    if (choices[i].token_ids) {
      writer.key("token_ids");
      write_token_ids(writer, *choices[i].token_ids);
    }
    writer.end_object();
  }
  writer.end_array().key("usage");
  write_usage(writer, usage);
  if (extras.prompt_token_ids != nullptr) {
    writer.key("prompt_token_ids");
    write_token_ids(writer, *extras.prompt_token_ids);
  }
  if (extras.prompt_logprobs != nullptr) {
    writer.key("prompt_logprobs");
    write_prompt_logprobs(writer, *extras.prompt_logprobs);
  }
  if (extras.timings != nullptr) {
    writer.key("timings");
    write_timings(writer, *extras.timings);
  }
  writer.end_object();
  return body;
}

ChatChunks::ChatChunks(const ChatAnswerHead& head, bool usage_follows)
    : opening_(chunk_head(head).append(kFirstChoice)),
      head_bytes_(opening_.size() - kFirstChoice.size()),
      reasoning_field_([&] {
        std::string quoted;
        if (!head.reasoning_field.empty()) base::append_json_string(quoted, head.reasoning_field);
        return quoted;
      }()),
      legacy_calls_(head.legacy_calls),
      tail_(usage_follows ? ",\"usage\":null}" : "}") {}

// What nearly all deltas are: some text of the first choice. False: this one is not. "Hi" becomes
// opening_ {"id":…,"choices":[{"index":0,"delta":{, then "content":"Hi", then kPlainEnd, then
// tail_.
bool ChatChunks::append_plain(const ChatDelta& delta, std::string& out) const {
  const bool reasons = !delta.reasoning.empty();
  const bool is_plain = delta.choice == 0 && !delta.role && reasons == delta.content.empty() &&
                        delta.tool_calls.empty() && delta.token_ids == nullptr &&
                        delta.prompt_token_ids == nullptr &&
                        (delta.logprobs == nullptr || delta.logprobs->empty());
  if (!is_plain || (reasons && reasoning_field_.empty())) return false;
  out += opening_;
  out += reasons ? std::string_view(reasoning_field_) : std::string_view("\"content\"");
  out += ':';
  base::append_json_string(out, reasons ? delta.reasoning : delta.content);
  out += kPlainEnd;
  out += tail_;
  return true;
}

void ChatChunks::delta(const ChatDelta& delta, std::string& out) const {
  if (append_plain(delta, out)) return;
  append_choice(delta.choice, out);
  out += ",\"delta\":{";
  std::string_view comma;
  const auto field = [&](std::string_view quoted_key, std::string_view text) {
    out += comma;
    out += quoted_key;
    out += ':';
    base::append_json_string(out, text);
    comma = ",";
  };
  if (delta.role) field("\"role\"", "assistant");
  if (!delta.reasoning.empty() && !reasoning_field_.empty()) {
    field(reasoning_field_, delta.reasoning);
  }
  // OpenAI's first delta has an empty content; clients start their text with it.
  if (!delta.content.empty() || delta.role) field("\"content\"", delta.content);
  if (!delta.tool_calls.empty() && legacy_calls_) {
    out += comma;
    out += "\"function_call\":";
    JsonWriter writer(out);
    write_called_function(writer, delta.tool_calls.front());  // of one call: there is no second
  } else if (!delta.tool_calls.empty()) {
    out += comma;
    out += "\"tool_calls\":[";
    for (size_t i = 0; i < delta.tool_calls.size(); ++i) {
      if (i > 0) out += ',';
      append_tool_call(delta.tool_calls[i], out);
    }
    out += ']';
  }
  out += "},\"logprobs\":";
  if (delta.logprobs != nullptr && !delta.logprobs->empty()) {
    JsonWriter writer(out);
    write_chat_logprobs(writer, *delta.logprobs);
  } else {
    out += "null";
  }
  out += ",\"finish_reason\":null";
  if (delta.token_ids != nullptr) {
    out += ",\"token_ids\":";
    JsonWriter writer(out);
    write_token_ids(writer, *delta.token_ids);
  }
  out += "}]";
  if (delta.prompt_token_ids != nullptr) {
    out += ",\"prompt_token_ids\":";
    JsonWriter writer(out);
    write_token_ids(writer, *delta.prompt_token_ids);
  }
  out += tail_;
}

void ChatChunks::append_choice(int choice, std::string& out) const {
  out += head();
  out += "[{\"index\":";
  JsonWriter(out).integer(choice);
}

void ChatChunks::finish(int choice, std::string_view finish_reason, const StopReason& stop_reason,
                        std::string& out) const {
  append_choice(choice, out);
  out += ",\"delta\":{},\"logprobs\":null,\"finish_reason\":";
  base::append_json_string(out, finish_reason);
  out += ",\"stop_reason\":";
  JsonWriter writer(out);
  write_stop_reason(writer, stop_reason);
  out += "}]";
  out += tail_;
}

void ChatChunks::add_usage(const Usage& usage) {
  tail_ = ",\"usage\":";
  JsonWriter writer(tail_);
  write_usage(writer, usage);
  tail_ += '}';
}

void ChatChunks::prompt_logprobs(const std::vector<PromptTokenLogprobs>& tokens,
                                 std::string& out) const {
  out += head();
  out += "[],\"prompt_logprobs\":";
  JsonWriter writer(out);
  write_prompt_logprobs(writer, tokens);
  out += tail_;
}

void ChatChunks::last(const Usage* usage, const Timings* timings, std::string& out) const {
  out += head();
  out += "[]";
  end_last_event(out, usage, timings);
}

}  // namespace pelton::api
