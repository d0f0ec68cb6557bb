#include "api/response_item.h"

#include <utility>

#include <fmt/format.h>

namespace pelton::api {
namespace {

// The body's own limit (net/) bounds texts.
constexpr size_t kTextBytesMax = std::numeric_limits<size_t>::max();
constexpr size_t kPartsMax = 65536;
constexpr size_t kIdBytesMax = 256;

void read_message(const Fields& fields, UnreadParts unread, ResponseItem& item) {
  static constexpr std::pair<std::string_view, ChatRole> kRoles[] = {
      {"user", ChatRole::kUser},
      {"assistant", ChatRole::kAssistant},
      {"system", ChatRole::kSystem},
      {"developer", ChatRole::kDeveloper},
  };
  const std::string* role = fields.text("role", 64);
  bool known = false;
  for (const auto& [name, value] : kRoles) {
    if (role == nullptr || *role != name) continue;
    item.role = value;
    known = true;
  }
  if (!known) {
    fields.refuse("role", fmt::format("'{}' must be 'user', 'assistant', 'system' or 'developer'",
                                      fields.path("role")));
    return;
  }
  if (const std::string* phase = fields.text("phase", 64)) {
    if (*phase == "commentary") item.phase = ResponseItem::Phase::kPreamble;
    if (*phase == "final_answer") item.phase = ResponseItem::Phase::kAnswer;
  }
  if (item.role != ChatRole::kUser) unread = UnreadParts::kRefused;
  std::optional<PartsText> content = read_parts(fields, "content", unread);
  if (fields.failed()) return;
  if (!content) {
    fields.refuse("content", fmt::format("'{}' is missing", fields.path("content")));
    return;
  }
  item.text = std::move(content->text);
  item.replaced = std::move(content->replaced);
}

// The texts of parts of one type (or its other name), `separator` between them.
struct PartList {
  std::string_view key;
  std::string_view type;
  std::string_view other_type;
  std::string_view separator;
};
std::string read_parts(const Fields& fields, const PartList& list) {
  std::string whole;
  const Json* parts = fields.array(list.key, kPartsMax);
  if (parts == nullptr) return whole;
  for (size_t i = 0; i < parts->as_array().size() && !fields.failed(); ++i) {
    const Json& json = parts->as_array()[i];
    const std::string path = item_path(fields.path(list.key), i);
    if (!json.is_object()) {
      fields.refuse(item_path(list.key, i),
                    fmt::format("'{}' must be an object, not {}", path, json.kind_name()));
      break;
    }
    const Fields part(json, path, fields.complaint());
    const std::string* type = part.text("type", 64);
    const std::string* text = part.text("text", kTextBytesMax);
    if (part.failed()) break;
    if (type == nullptr || (*type != list.type && *type != list.other_type)) {
      part.refuse("type", fmt::format("'{}' must be '{}'", part.path("type"), list.type));
    } else if (text == nullptr) {
      part.refuse("text", fmt::format("'{}' is missing", part.path("text")));
    } else {
      if (!whole.empty()) whole += list.separator;
      whole += *text;
    }
  }
  return whole;
}

// Where a client gives back the summary alone, that is what the model thought: as its summary it
// was sent nothing else.
void read_reasoning(const Fields& fields, ResponseItem& item) {
  item.text = read_parts(
      fields, {.key = "content", .type = "reasoning_text", .other_type = "text", .separator = ""});
  std::string summary = read_parts(
      fields,
      {.key = "summary", .type = "summary_text", .other_type = "text", .separator = "\n\n"});
  if (item.text.empty()) item.text = std::move(summary);
  const std::string* encrypted = fields.text("encrypted_content", kTextBytesMax);
  if (encrypted != nullptr) item.encrypted_content = *encrypted;
}

const std::string* needed_text(const Fields& fields, std::string_view key, size_t bytes_max) {
  const std::string* text = fields.text(key, bytes_max);
  if (text != nullptr && !text->empty()) return text;
  fields.refuse(key, fmt::format("'{}' is missing", fields.path(key)));
  return nullptr;
}

void read_call(const Fields& fields, ResponseItem& item) {
  const std::string* id = needed_text(fields, "call_id", kIdBytesMax);
  // Any words: the model may have made this name up, and its slip must not end the conversation.
  const std::string* name = needed_text(fields, "name", kIdBytesMax);
  const std::string* arguments = fields.text("arguments", kTextBytesMax);
  if (fields.failed()) return;
  item.call_id = *id;
  item.name = *name;
  if (arguments != nullptr) item.text = *arguments;
}

void read_result(const Fields& fields, ResponseItem& item) {
  const std::string* id = needed_text(fields, "call_id", kIdBytesMax);
  std::optional<PartsText> output = read_parts(fields, "output", UnreadParts::kReplaced);
  if (fields.failed()) return;
  if (!output) {
    fields.refuse("output", fmt::format("'{}' is missing", fields.path("output")));
    return;
  }
  item.call_id = *id;
  item.text = std::move(output->text);
  item.replaced = std::move(output->replaced);
}

// `unread`: what becomes of images and the like in a user's message.
ResponseItem read_item(const Fields& fields, UnreadParts unread) {
  using Kind = ResponseItem::Kind;
  ResponseItem item;
  item.path = fields.path("");
  const std::string* type = fields.text("type", 256);
  if (fields.failed()) return item;
  const std::string_view kind = type == nullptr ? std::string_view("message") : *type;
  if (kind == "message") {
    read_message(fields, unread, item);
  } else if (kind == "reasoning") {
    item.kind = Kind::kReasoning;
    read_reasoning(fields, item);
  } else if (kind == "function_call") {
    item.kind = Kind::kCall;
    read_call(fields, item);
  } else if (kind == "function_call_output") {
    item.kind = Kind::kResult;
    read_result(fields, item);
  } else {
    fields.refuse("type", fmt::format("'{}' is '{}'; this server knows 'message', 'reasoning', "
                                      "'function_call' and 'function_call_output'",
                                      fields.path("type"), kind.substr(0, 40)));
  }
  return item;
}

// What the server did for the model in a turn that is over: the next one is not shown it.
bool is_builtin_call(const Json& item) {
  const std::string type = item.string("type").value_or("");
  return type == "web_search_call" || type == "code_interpreter_call";
}

std::vector<ResponseItem> read_array(const Json::Array& array, std::string_view path,
                                     std::optional<Error>& complaint) {
  std::vector<ResponseItem> items;
  items.reserve(array.size());
  UnreadParts unread = UnreadParts::kRefused;
  for (size_t i = 0; i < array.size() && !complaint; ++i) {
    const std::string item = item_path(path, i);
    if (!array[i].is_object()) {
      complaint =
          Error{ErrorCode::kInvalidArgument,
                fmt::format("'{}' must be an object, not {}", item, array[i].kind_name()), item};
      break;
    }
    if (is_builtin_call(array[i])) continue;
    items.push_back(read_item(Fields(array[i], item, complaint), unread));
    // Behind a tool's result until the model speaks again.
    if (items.back().kind == ResponseItem::Kind::kResult) unread = UnreadParts::kReplaced;
    if (items.back().is_models()) unread = UnreadParts::kRefused;
  }
  return items;
}

std::string_view id_prefix(const Json& item) {
  const std::string type = item.string("type").value_or("message");
  if (type == "reasoning") return "rs_";
  if (type == "web_search_call") return "ws_";
  if (type == "code_interpreter_call") return "ci_";
  return type == "message" ? "msg_" : "fc_";
}

Json text_part(std::string_view type, Json text) {
  // Not as a list in braces: where memory fails amid one, g++ 12 destroys what it has not made.
  Json part;
  part.set("type", Json(type)).set("text", std::move(text));
  return part;
}

}  // namespace

std::vector<ResponseItem> read_response_items(const Fields& body, std::string_view key) {
  const Json* input = body.find(key);
  if (input != nullptr && input->is_string()) {
    ResponseItem item;
    item.text = input->as_string();
    item.path = body.path(key);
    return {std::move(item)};
  }
  if (input != nullptr && !input->is_array()) {
    body.refuse(key, fmt::format("'{}' must be a string or an array of items, not {}",
                                 body.path(key), input->kind_name()));
    return {};
  }
  const Json* items = body.array(key, kResponseItemsMax);
  if (items == nullptr || body.failed()) return {};
  return read_array(items->as_array(), body.path(key), body.complaint());
}

Result<std::vector<ResponseItem>> parse_response_items(const Json& items) {
  if (!items.is_array()) {
    return Error{ErrorCode::kInvalidArgument, "the items are no array", ""};
  }
  std::optional<Error> complaint;
  std::vector<ResponseItem> read = read_array(items.as_array(), "items", complaint);
  if (complaint) return std::move(*complaint);
  return read;
}

// "hi" becomes [{"role": "user", "content": [{"type": "input_text", "text": "hi"}], "type":
// "message", "id": "msg_…", "status": "completed"}].
Json listed_items(const Json& input, base::FunctionRef<std::string(std::string_view)> new_id) {
  Json::Array listed;
  if (input.is_string()) {
    Json message;
    message.set("role", Json("user")).set("content", input);
    listed.push_back(std::move(message));
  } else if (input.is_array()) {
    listed = input.as_array();
  }
  for (Json& item : listed) {
    const std::string_view prefix = id_prefix(item);
    if (prefix == "msg_") {
      item.set("type", Json("message"));
      const Json* content = item.find("content");
      if (content != nullptr && content->is_string()) {
        const bool by_model = item.string("role") == "assistant";
        Json part = text_part(by_model ? "output_text" : "input_text", *content);
        Json::Array parts;
        parts.push_back(std::move(part));
        item.set("content", Json(std::move(parts)));
      }
    }
    if (!item.string("id") || item.string("id")->empty()) item.set("id", Json(new_id(prefix)));
    if (!item.string("status")) item.set("status", Json("completed"));
  }
  return Json(std::move(listed));
}

}  // namespace pelton::api
