#include "api/response_object.h"

namespace pelton::api {
namespace {

using base::JsonWriter;
using Kind = OutputItem::Kind;

std::string_view status_name(ResponseStatus status) {
  switch (status) {
    case ResponseStatus::kInProgress:
      return "in_progress";
    case ResponseStatus::kCompleted:
      return "completed";
    case ResponseStatus::kIncomplete:
      return "incomplete";
    case ResponseStatus::kFailed:
      return "failed";
    case ResponseStatus::kCancelled:
      return "cancelled";
  }
  return "failed";
}

std::string_view status_name(OutputItem::Status status) {
  switch (status) {
    case OutputItem::Status::kInProgress:
      return "in_progress";
    case OutputItem::Status::kCompleted:
      return "completed";
    case OutputItem::Status::kIncomplete:
      return "incomplete";
    case OutputItem::Status::kFailed:
      return "failed";
  }
  return "incomplete";
}

enum class Extent { kWhole, kBegun };

// What a call of the browser's does, by the names of the model's training, whose arguments are as
// the model wrote them.
void write_web_action(JsonWriter& writer, const OutputItem& item, Extent extent) {
  const Result<Json> parsed = Json::parse(item.text);
  const Json arguments = extent == Extent::kWhole && parsed.ok() ? *parsed : Json();
  const auto text = [&](std::string_view key) { return arguments.string(key).value_or(""); };
  writer.begin_object();
  if (item.name == "browser.open") {
    writer.key("type").string("open_page").key("url");
    if (const auto url = arguments.string("id")) {
      writer.string(*url);
    } else {
      writer.null();  // a link by its number
    }
  } else if (item.name == "browser.find") {
    writer.key("type").string("find_in_page").key("pattern").string(text("pattern"));
    writer.key("url").string("");
  } else {
    writer.key("type").string("search").key("query").string(text("query"));
  }
  writer.end_object();
}

void write_code(JsonWriter& writer, const OutputItem& item, Extent extent) {
  writer.key("type").string("code_interpreter_call");
  writer.key("code").string(extent == Extent::kWhole ? std::string_view(item.text) : "");
  writer.key("container_id").string("").key("outputs");
  if (!item.logs || extent == Extent::kBegun) {
    writer.null();
    return;
  }
  writer.begin_array().begin_object().key("type").string("logs").key("logs").string(*item.logs);
  writer.end_object().end_array();
}

void write_part(JsonWriter& writer, const OutputItem& item, Extent extent) {
  const std::string_view text = extent == Extent::kWhole ? std::string_view(item.text) : "";
  writer.begin_object();
  if (item.kind == Kind::kReasoning) {
    writer.key("type").string("reasoning_text").key("text").string(text).end_object();
    return;
  }
  writer.key("type").string("output_text");
  writer.key("annotations").begin_array().end_array();
  writer.key("logprobs");
  if (extent == Extent::kWhole) {
    write_token_logprobs(writer, item.logprobs);
  } else {
    writer.begin_array().end_array();
  }
  writer.key("text").string(text).end_object();
}

void write_item(JsonWriter& writer, const OutputItem& item, Extent extent) {
  writer.begin_object().key("id").string(item.id);
  const auto write_content = [&] {
    writer.key("content").begin_array();
    if (extent == Extent::kWhole) write_part(writer, item, extent);
    writer.end_array();
  };
  switch (item.kind) {
    case Kind::kReasoning:
      writer.key("type").string("reasoning").key("summary").begin_array();
      if (item.has_summary && extent == Extent::kWhole) write_summary_part(writer, item.text);
      writer.end_array();
      write_content();
      writer.key("encrypted_content");
      if (item.encrypted_content.empty()) {
        writer.null();
      } else {
        writer.string(item.encrypted_content);
      }
      break;
    case Kind::kMessage:
      writer.key("type").string("message").key("role").string("assistant");
      if (extent == Extent::kWhole || !item.open_phase) {
        writer.key("phase").string(item.commentary ? "commentary" : "final_answer");
      }
      write_content();
      break;
    case Kind::kCall:
      writer.key("type").string("function_call").key("call_id").string(item.call_id);
      writer.key("name").string(item.name).key("arguments");
      writer.string(extent == Extent::kWhole ? std::string_view(item.text) : "");
      break;
    case Kind::kWebSearch:
      writer.key("type").string("web_search_call").key("action");
      write_web_action(writer, item, extent);
      break;
    case Kind::kCode:
      write_code(writer, item, extent);
      break;
  }
  writer.key("status").string(
      status_name(extent == Extent::kWhole ? item.status : OutputItem::Status::kInProgress));
  writer.end_object();
}

// The words that the API knows for what went wrong.
std::string_view error_code(const ApiError& error) {
  if (error.status == 429) return "rate_limit_exceeded";
  return error.status >= 500 || error.status == 408 ? "server_error" : "invalid_prompt";
}

void write_error(JsonWriter& writer, const ApiError* error) {
  writer.key("error");
  if (error == nullptr) {
    writer.null();
    return;
  }
  writer.begin_object().key("code").string(error_code(*error));
  writer.key("message").string(error->message).end_object();
}

void write_incomplete_details(JsonWriter& writer, const ResponseState& state) {
  writer.key("incomplete_details");
  if (state.status != ResponseStatus::kIncomplete) {
    writer.null();
    return;
  }
  writer.begin_object().key("reason").string(state.incomplete_reason).end_object();
}

void write_usage_member(JsonWriter& writer, const std::optional<Usage>& usage) {
  writer.key("usage");
  if (!usage) {
    writer.null();
    return;
  }
  writer.begin_object();
  writer.key("input_tokens").integer(usage->prompt_tokens);
  writer.key("input_tokens_details").begin_object();
  writer.key("cached_tokens").integer(usage->cached_tokens);
  writer.key("cache_write_tokens").integer(0).end_object();
  writer.key("output_tokens").integer(usage->completion_tokens);
  writer.key("output_tokens_details").begin_object();
  writer.key("reasoning_tokens").integer(usage->reasoning_tokens).end_object();
  writer.key("total_tokens").integer(usage->prompt_tokens + usage->completion_tokens);
  writer.end_object();
}

}  // namespace

void write_output_item(JsonWriter& writer, const OutputItem& item) {
  write_item(writer, item, Extent::kWhole);
}

void write_begun_item(JsonWriter& writer, const OutputItem& item) {
  write_item(writer, item, Extent::kBegun);
}

void write_summary_part(JsonWriter& writer, std::string_view text) {
  writer.begin_object().key("type").string("summary_text").key("text").string(text).end_object();
}

void write_content_part(JsonWriter& writer, const OutputItem& item) {
  write_part(writer, item, Extent::kWhole);
}

void write_begun_part(JsonWriter& writer, const OutputItem& item) {
  write_part(writer, item, Extent::kBegun);
}

std::string output_items_body(std::span<const OutputItem> items) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_array();
  for (const OutputItem& item : items) write_output_item(writer, item);
  writer.end_array();
  return body;
}

std::string response_body(const ResponseHead& head, const ResponseState& state) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_object();
  writer.key("id").string(head.id);
  writer.key("object").string("response");
  writer.key("created_at").integer(head.created_at);
  writer.key("status").string(status_name(state.status));
  writer.key("completed_at");
  if (state.completed_at) {
    writer.integer(*state.completed_at);
  } else {
    writer.null();
  }
  write_error(writer, state.error);
  write_incomplete_details(writer, state);
  writer.key("model").string(head.model);
  body += ',';
  body += head.echo;
  writer.key("store").boolean(head.stored);
  writer.key("output").begin_array();
  for (const OutputItem& item : state.output) write_output_item(writer, item);
  writer.end_array();
  write_usage_member(writer, state.usage);
  if (state.timings != nullptr) {
    writer.key("timings");
    write_timings(writer, *state.timings);
  }
  writer.end_object();
  return body;
}

std::string deleted_response_body(std::string_view id) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_object().key("id").string(id).key("object").string("response.deleted");
  writer.key("deleted").boolean(true).end_object();
  return body;
}

std::string item_list_body(const ItemPage& page) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_object().key("object").string("list").key("data").begin_array();
  for (const Json& item : page.items) writer.value(item);
  writer.end_array();
  const auto id = [&](std::string_view key, const Json* item) {
    writer.key(key);
    if (item == nullptr) {
      writer.null();
    } else {
      writer.string(item->string("id").value_or(""));
    }
  };
  id("first_id", page.items.empty() ? nullptr : &page.items.front());
  id("last_id", page.items.empty() ? nullptr : &page.items.back());
  writer.key("has_more").boolean(page.has_more).end_object();
  return body;
}

}  // namespace pelton::api
