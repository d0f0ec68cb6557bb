#include "api/ollama_request.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "api/fields.h"
#include "api/json_object.h"

namespace pelton::api {
namespace {

constexpr size_t kModelBytesMax = 512;
constexpr size_t kTextBytesMax = size_t{16} << 20;
constexpr size_t kOllamaMessagesMax = 16'384;
constexpr size_t kCallsMax = 128;

// Each is known to the other endpoints by the same name.
constexpr std::string_view kOptions[] = {
    "num_keep",    "seed",           "num_predict",      "top_k",
    "top_p",       "min_p",          "typical_p",        "repeat_last_n",
    "temperature", "repeat_penalty", "presence_penalty", "frequency_penalty",
    "mirostat",    "mirostat_tau",   "mirostat_eta",     "penalize_newline",
    "stop",        "numa",           "num_ctx",          "num_batch",
    "num_gpu",     "main_gpu",       "low_vram",         "vocab_only",
    "use_mmap",    "use_mlock",      "num_thread",       "tfs_z",
    "f16_kv",      "logits_all",     "embedding_only"};

bool is_option(std::string_view name) {
  return std::ranges::find(kOptions, name) != std::end(kOptions);
}

void refuse_unknown(const Fields& fields, std::string_view what) {
  fields.unread([&](const std::string& key, const Json&) {
    fields.refuse(key.substr(0, 64),
                  fmt::format("'{}' is no {}", fields.path(key.substr(0, 64)), what));
  });
}

// What all three say: the model and "options", each of which becomes a field of the other body.
Json begin_body(const Fields& fields) {
  Json body{Json::Object{}};
  if (const std::string* model = fields.text("model", kModelBytesMax)) {
    body.set("model", without_latest(*model));
  }
  if (const Json* keep_alive = fields.find("keep_alive")) body.set("keep_alive", *keep_alive);
  const Json* const options = fields.object("options");
  if (options == nullptr) return body;
  for (const Json::Member& option : options->as_object()) {
    if (!is_option(option.key)) {
      fields.refuse("options",
                    fmt::format("'options.{}' is no option of Ollama's", option.key.substr(0, 64)));
      continue;
    }
    // As many as fit, or as the context holds: the same here.
    const bool fills = option.key == "num_predict" && option.value == Json(int64_t{-2});
    body.set(option.key, fills ? Json(int64_t{-1}) : option.value);
  }
  return body;
}

// And what the two that sample have beside.
void read_sampling(const Fields& fields, Json& body, OllamaRequest& request) {
  body.set("stream", fields.boolean("stream").value_or(true));
  const Json* const format = fields.find("format");
  if (format != nullptr && *format != Json("")) body.set("format", *format);
  const Json* const think = fields.find("think");
  if (think == nullptr) return;
  if (!think->is_bool() && !think->is_string()) {
    return fields.refuse("think", "'think' must be true, false, 'low', 'medium' or 'high'");
  }
  body.set("think", *think);
  request.shows_thinking = *think != Json(false);
}

// So many likeliest tokens are shown beside each; none: log-probabilities are not asked for.
std::optional<int64_t> read_logprobs(const Fields& fields, const RequestLimits& limits) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const int64_t top =
      fields.integer("top_logprobs", {.low = 0, .high = limits.top_logprobs_max}).value_or(0);
  if (wanted) return top;
  if (top > 0) {
    fields.refuse("top_logprobs", "'top_logprobs' is only allowed with 'logprobs': true");
  }
  return std::nullopt;
}

void ask_logprobs(bool is_chat, std::optional<int64_t> top, Json& body) {
  if (!top) return;
  if (is_chat) {
    body.set("logprobs", true);
    body.set("top_logprobs", *top);
  } else {
    body.set("logprobs", *top);
  }
}

// Either way what does not fit is refused, and an answer that fills the context ends with it.
void take_overflow(const Fields& fields) {
  static_cast<void>(fields.boolean("truncate"));
  static_cast<void>(fields.boolean("shift"));
}

bool is_empty(const Json* value) {
  return value == nullptr || (value->is_string() && value->as_string().empty()) ||
         (value->is_array() && value->as_array().empty());
}

void refuse_images(const Fields& fields) {
  if (!is_empty(fields.find("images"))) {
    fields.refuse_unsupported("images", "images");
  }
}

// Calls have no ids in Ollama: they are numbered, and results belong to them in their order.
struct CallIds {
  struct Open {
    std::string id;
    std::string name;
  };
  std::deque<Open> open;
  int made = 0;

  Json make(std::string name) {
    open.push_back({.id = fmt::format("call_{}", made++), .name = std::move(name)});
    return Json(open.back().id);
  }
  // The first that waits for a result of this name; empty: of any.
  std::optional<std::string> take(const std::string& name) {
    auto found = std::ranges::find_if(
        open, [&](const Open& one) { return name.empty() || one.name == name; });
    if (found == open.end()) found = open.begin();
    if (found == open.end()) return std::nullopt;
    std::string id = std::move(found->id);
    open.erase(found);
    return id;
  }
};

// {"function": {"name", "arguments": {…}}} with its arguments as text, as OpenAI has them.
Json translated_call(const Fields& call, CallIds& ids) {
  Json made{Json::Object{}};
  const Json* const function = call.object("function");
  if (function == nullptr) {
    call.refuse("function", fmt::format("'{}' is missing", call.path("function")));
    return made;
  }
  const Fields inner(*function, call.path("function"), call.complaint());
  const std::string* const name = inner.text("name", 256);
  if (name == nullptr) inner.refuse("name", fmt::format("'{}' is missing", inner.path("name")));
  const Json* const arguments = inner.object("arguments");
  Json translated{Json::Object{}};
  translated.set("name", name == nullptr ? std::string() : *name);
  translated.set("arguments", arguments == nullptr ? std::string("{}") : arguments->dump());
  made.set("id", ids.make(name == nullptr ? std::string() : *name));
  made.set("type", "function");
  made.set("function", std::move(translated));
  return made;
}

Json translated_message(const Fields& message, CallIds& ids) {
  Json made{Json::Object{}};
  const std::string* const role = message.text("role", 64);
  if (role != nullptr) made.set("role", *role);
  const std::string* const content = message.text("content", kTextBytesMax);
  made.set("content", content == nullptr ? std::string() : *content);
  refuse_images(message);
  if (const std::string* const thinking = message.text("thinking", kTextBytesMax)) {
    if (!thinking->empty()) made.set("thinking", *thinking);
  }
  const Json* const calls = message.array("tool_calls", kCallsMax);
  if (!is_empty(calls)) {
    Json::Array translated;
    for (size_t i = 0; i < calls->as_array().size(); ++i) {
      const std::string path = item_path(message.path("tool_calls"), i);
      if (!calls->as_array()[i].is_object()) {
        message.refuse("tool_calls", fmt::format("'{}' must be an object", path));
        break;
      }
      translated.push_back(
          translated_call(Fields(calls->as_array()[i], path, message.complaint()), ids));
    }
    made.set("tool_calls", std::move(translated));
  }
  const std::string* name = message.text("tool_name", 256);
  const std::string* const older = message.text("name", 256);
  if (name == nullptr) name = older;
  if (role != nullptr && *role == "tool") {
    const auto id = ids.take(name == nullptr ? std::string() : *name);
    if (!id) message.refuse("", "a message of role 'tool' follows no call that waits for a result");
    made.set("tool_call_id", id.value_or(""));
  }
  // Of a call that Ollama numbers itself: which are which is in their order already.
  static_cast<void>(message.find("tool_call_id"));
  refuse_unknown(message, "field of a message of Ollama's");
  return made;
}

Json translated_messages(const Fields& fields, const Json::Array& messages) {
  Json::Array made;
  CallIds ids;
  for (size_t i = 0; i < messages.size() && !fields.failed(); ++i) {
    const std::string path = item_path("messages", i);
    if (!messages[i].is_object()) {
      fields.refuse("messages", fmt::format("'{}' must be an object", path));
      break;
    }
    made.push_back(translated_message(
        Fields(messages[i], path, fields.complaint(), Fields::Reads::kKept), ids));
  }
  return made;
}

// Of a request that asks nothing: only the model's name and how long it stays.
void load_only(const Fields& fields, Json& body, OllamaRequest& request) {
  request.loads = true;
  request.is_chat = false;
  body.set("prompt", " ");
  const Json* const keep_alive = fields.find("keep_alive");
  request.unloads =
      keep_alive != nullptr &&
      (*keep_alive == Json(int64_t{0}) || *keep_alive == Json("0") || *keep_alive == Json("0s"));
}

// A prompt that no template goes around.
void complete(const Fields& fields, Json& body) {
  if (const std::string* prompt = fields.text("prompt", kTextBytesMax)) body.set("prompt", *prompt);
  const std::string* const suffix = fields.text("suffix", kTextBytesMax);
  if (suffix != nullptr && !suffix->empty()) body.set("suffix", *suffix);
  // As many as fit, where OpenAI's completions have 16.
  if (body.find("num_predict") == nullptr) body.set("num_predict", int64_t{-1});
}

}  // namespace

std::string_view without_latest(std::string_view model) {
  constexpr std::string_view kTag = ":latest";
  if (model.ends_with(kTag)) model.remove_suffix(kTag.size());
  return model;
}

Result<OllamaRequest> parse_ollama_chat(std::string_view text, const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(text));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  OllamaRequest request{.is_chat = true};
  Json body = begin_body(fields);
  read_sampling(fields, body, request);
  const Json* const messages = fields.array("messages", kOllamaMessagesMax);
  const Json* const tools = fields.array("tools", kOllamaMessagesMax);
  if (!is_empty(tools)) body.set("tools", *tools);
  const std::optional<int64_t> top_logprobs = read_logprobs(fields, limits);
  take_overflow(fields);
  refuse_unknown(fields, "field of /api/chat");
  if (is_empty(messages)) {
    load_only(fields, body, request);
  } else {
    ask_logprobs(request.is_chat, top_logprobs, body);
    body.set("messages", translated_messages(fields, messages->as_array()));
  }
  if (complaint) return std::move(*complaint);
  request.body = body.dump();
  return request;
}

Result<OllamaRequest> parse_ollama_generate(std::string_view text, const RequestLimits& limits,
                                            bool has_chat) {
  TRY_ASSIGN(const Json json, parse_object(text));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  OllamaRequest request;
  Json body = begin_body(fields);
  read_sampling(fields, body, request);
  const std::string* const prompt = fields.text("prompt", kTextBytesMax);
  const std::string* const system = fields.text("system", kTextBytesMax);
  const std::string* const suffix = fields.text("suffix", kTextBytesMax);
  const bool raw = fields.boolean("raw").value_or(false);
  refuse_images(fields);
  if (!is_empty(fields.find("template"))) {
    fields.refuse_unsupported("template", "another template than the model's own");
  }
  if (!is_empty(fields.find("context"))) {
    fields.refuse_unsupported("context", "a context of tokens (send the messages to /api/chat)");
  }
  for (const char* const key : {"width", "height", "steps"}) {  // of a picture that is made
    if (fields.find(key) != nullptr) fields.refuse_unsupported(key, "making images");
  }
  const std::optional<int64_t> top_logprobs = read_logprobs(fields, limits);
  take_overflow(fields);
  refuse_unknown(fields, "field of /api/generate");
  const bool has_suffix = suffix != nullptr && !suffix->empty();
  request.is_chat = has_chat && !raw && !has_suffix;
  if (system != nullptr && !system->empty() && !request.is_chat) {
    fields.refuse("system",
                  "'system' goes through the model's template: not with 'raw' or "
                  "'suffix', nor of a model without one");
  }
  if (prompt == nullptr || (prompt->empty() && !has_suffix)) {
    load_only(fields, body, request);
  } else if (request.is_chat) {
    Json::Array messages;
    const auto add = [&](std::string_view role, const std::string& content) {
      Json message{Json::Object{}};
      message.set("role", role);
      message.set("content", content);
      messages.push_back(std::move(message));
    };
    if (system != nullptr && !system->empty()) add("system", *system);
    add("user", *prompt);
    body.set("messages", std::move(messages));
  } else {
    complete(fields, body);
  }
  if (!request.loads) ask_logprobs(request.is_chat, top_logprobs, body);
  if (complaint) return std::move(*complaint);
  request.body = body.dump();
  return request;
}

Result<OllamaEmbedRequest> parse_ollama_embed(std::string_view text, const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(text));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  OllamaEmbedRequest request;
  Json body = begin_body(fields);
  if (const Json* const input = fields.find("input")) body.set("input", *input);
  if (const Json* const dimensions = fields.find("dimensions")) body.set("dimensions", *dimensions);
  request.truncates = fields.boolean("truncate").value_or(true);
  refuse_unknown(fields, "field of /api/embed");
  if (complaint) return std::move(*complaint);
  request.body = body.dump();
  return request;
}

Result<std::string> parse_ollama_show(std::string_view text, const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(text));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  const std::string* model = fields.text("model", kModelBytesMax);
  const std::string* const older = fields.text("name", kModelBytesMax);
  fields.boolean("verbose");  // there is no more to say
  // In place of the model's own, which is shown all the same.
  static_cast<void>(fields.text("system", kTextBytesMax));
  static_cast<void>(fields.text("template", kTextBytesMax));
  static_cast<void>(fields.object("options"));
  refuse_unknown(fields, "field of /api/show");
  if (model == nullptr) model = older;
  if (model == nullptr) fields.refuse("model", "'model' is missing");
  if (complaint) return std::move(*complaint);
  return std::string(without_latest(*model));
}

Error in_ollama_words(Error error) {
  if (!is_option(error.field)) return error;
  const std::string quoted = "'" + error.field + "'";
  const size_t at = error.message.find(quoted);
  if (at != std::string::npos) error.message.replace(at + 1, 0, "options.");
  error.field.insert(0, "options.");
  return error;
}

}  // namespace pelton::api
