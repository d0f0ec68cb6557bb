#include "gateway/foreign_stream.h"

#include <algorithm>
#include <array>
#include <utility>

namespace pelton::gateway {
namespace {

constexpr size_t kTextBytesMax = size_t{16} << 20;
constexpr std::string_view kData = "data:";

// What makes an answer more than the text of one choice, or a state that is unknown.
bool is_plain_text(const Json& body) {
  constexpr std::array<std::string_view, 20> kMore = {"tools",           "functions",
                                                      "response_format", "structured_outputs",
                                                      "guided_json",     "guided_regex",
                                                      "guided_choice",   "guided_grammar",
                                                      "grammar",         "json_schema",
                                                      "suffix",          "logprobs",
                                                      "top_logprobs",    "prompt_logprobs",
                                                      "use_beam_search", "echo",
                                                      "regex",           "ebnf",
                                                      "structural_tag",  "guided_decoding_backend"};
  for (const std::string_view key : kMore) {
    const Json* value = body.find(key);
    if (value != nullptr && !value->is_null() && !(value->is_bool() && !value->as_bool())) {
      return false;
    }
  }
  return body.integer("n").value_or(1) == 1 && body.integer("best_of").value_or(1) == 1;
}

std::vector<int64_t> integers_of(const Json* list) {
  std::vector<int64_t> all;
  if (list == nullptr || !list->is_array()) return all;
  for (const Json& one : list->as_array()) {
    if (one.is_integer()) all.push_back(one.as_integer());
  }
  return all;
}

bool has_text(const Json& object, std::string_view key) {
  const auto text = object.string(key);
  return text && !text->empty();
}

Json without(const Json& object, std::string_view key) {
  Json::Object kept;
  for (const Json::Member& member : object.as_object()) {
    if (member.key != key) kept.push_back(member);
  }
  return Json(std::move(kept));
}

}  // namespace

std::optional<ForeignStream> ForeignStream::of(const net::HttpRequest& request, WorkerKind kind,
                                               const ForeignAbilities& abilities) {
  const bool is_chat = request.path == "/v1/chat/completions";
  if (!is_chat && request.path != "/v1/completions") return std::nullopt;
  Result<Json> body = Json::parse(request.body);
  if (!body.ok() || !body->is_object() || body->boolean("stream") != std::optional(true)) {
    return std::nullopt;
  }
  if (!is_plain_text(*body)) return std::nullopt;
  const Json* prompt = body->find(is_chat ? "messages" : "prompt");
  if (prompt == nullptr) return std::nullopt;
  const bool is_text = prompt->is_string();
  const bool is_tokens =
      prompt->is_array() && !prompt->as_array().empty() &&
      std::ranges::all_of(prompt->as_array(), [](const Json& one) { return one.is_integer(); });
  if (is_chat ? !prompt->is_array() : !is_text && !(is_tokens && abilities.tokens)) {
    return std::nullopt;
  }
  // A last message of the assistant's is one that its client goes on with itself.
  if (is_chat && (prompt->as_array().empty() || prompt->as_array().back().string("role") ==
                                                    std::optional<std::string>("assistant"))) {
    return std::nullopt;
  }
  ForeignStream stream;
  stream.path_ = request.path;
  stream.kind_ = kind;
  stream.original_ = request.body;
  const bool asked_tokens = body->boolean("return_token_ids").value_or(false);
  stream.says_tokens_ = !is_chat && abilities.tokens && !asked_tokens;
  const Json* options = body->find("stream_options");
  stream.wants_usage_ = options != nullptr && options->boolean("include_usage").value_or(false);
  const auto most = body->integer("max_completion_tokens");
  stream.max_tokens_ = std::max<int64_t>(most ? *most : body->integer("max_tokens").value_or(0), 0);
  stream.asked_ = *std::move(body);
  return stream;
}

ForeignNeed ForeignStream::need() const {
  if (!can_go_on_ || text_.size() > kTextBytesMax || is_finished_) return ForeignNeed::kNone;
  // Nothing is left to be said, but it did not say so.
  if (max_tokens_ > 0 && said_ >= max_tokens_) return ForeignNeed::kNone;
  if (is_chat()) return ForeignNeed::kChat;
  if (says_tokens_ && !prompt_tokens_.empty()) return ForeignNeed::kTokens;
  return asked_.find("prompt")->is_string() ? ForeignNeed::kText : ForeignNeed::kNone;
}

std::string ForeignStream::body() const {
  if (said_ == 0) {
    if (!says_tokens_) return original_;
    Json first = asked_;
    first.set("return_token_ids", Json(true));
    return first.dump();
  }
  Json next = asked_;
  if (max_tokens_ > 0) {
    const char* const key =
        asked_.find("max_completion_tokens") != nullptr ? "max_completion_tokens" : "max_tokens";
    next.set(key, Json(max_tokens_ - said_));
  }
  if (const auto least = asked_.integer("min_tokens")) {
    next.set("min_tokens", Json(std::max<int64_t>(*least - said_, 0)));
  }
  if (is_chat()) {
    Json::Array messages = asked_.find("messages")->as_array();
    Json said{Json::Object{}};
    said.set("role", Json("assistant"));
    said.set("content", Json(text_));
    messages.push_back(std::move(said));
    next.set("messages", Json(std::move(messages)));
    if (kind_ != WorkerKind::kLlamaCpp) {
      next.set("add_generation_prompt", Json(false));
      next.set("continue_final_message", Json(true));
    }
    return next.dump();
  }
  if (need() != ForeignNeed::kTokens) {
    next.set("prompt", Json(*asked_.string("prompt") + text_));
    return next.dump();
  }
  Json::Array prompt;
  for (const int64_t token : prompt_tokens_) prompt.push_back(Json(token));
  for (const int64_t token : tokens_) prompt.push_back(Json(token));
  next.set("prompt", Json(std::move(prompt)));
  next.set("return_token_ids", Json(true));
  return next.dump();
}

std::string ForeignStream::pass(std::string_view events) {
  std::string out;
  while (!events.empty()) {
    const size_t end = std::min(events.find('\n'), events.size());
    const std::string_view line = events.substr(0, std::min(end + 1, events.size()));
    events.remove_prefix(line.size());
    if (!line.starts_with(kData)) {
      out += line;
      continue;
    }
    std::string_view data = line.substr(kData.size());
    while (data.starts_with(' ')) data.remove_prefix(1);
    while (data.ends_with('\n') || data.ends_with('\r')) data.remove_suffix(1);
    const std::optional<std::string> other = take(data);
    if (other) {
      out += "data: " + *other + "\n";
    } else {
      out += line;
    }
  }
  return out;
}

std::optional<std::string> ForeignStream::take(std::string_view data) {
  if (!data.starts_with('{')) return std::nullopt;
  Result<Json> json = Json::parse(data);
  if (!json.ok()) {
    can_go_on_ = false;
    return std::nullopt;
  }
  Json& event = *json;
  if (id_.empty()) {
    id_ = event.string("id").value_or("");
    created_ = event.integer("created");
    model_ = event.string("model").value_or("");
  }
  const Json* usage = event.find("usage");
  has_usage_ = has_usage_ || (usage != nullptr && usage->is_object());
  if (const Json* choices = event.find("choices"); choices != nullptr && choices->is_array()) {
    for (const Json& choice : choices->as_array()) note(choice);
  }
  if (event.find("error") != nullptr) can_go_on_ = false;
  if (!is_resumed_ && !says_tokens_) return std::nullopt;
  rename(event);
  return event.dump();
}

void ForeignStream::note(const Json& choice) {
  if (!choice.is_object() || choice.integer("index").value_or(0) != 0) {
    can_go_on_ = false;
    return;
  }
  const Json* delta = choice.find("delta");
  const Json& holder = is_chat() && delta != nullptr ? *delta : choice;
  // Mid-reasoning or amid a call nobody else can go on.
  const Json* calls = holder.find("tool_calls");
  if (has_text(holder, "reasoning") || has_text(holder, "reasoning_content") ||
      (calls != nullptr && calls->is_array() && !calls->as_array().empty()) ||
      holder.find("function_call") != nullptr) {
    can_go_on_ = false;
  }
  const std::string text = holder.string(is_chat() ? "content" : "text").value_or("");
  text_ += text;
  if (says_tokens_) {
    if (prompt_tokens_.empty()) prompt_tokens_ = integers_of(choice.find("prompt_token_ids"));
    const std::vector<int64_t> tokens = integers_of(choice.find("token_ids"));
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    said_ = std::ssize(tokens_);
  } else if (!text.empty()) {
    ++said_;
  }
  is_finished_ = is_finished_ || has_text(choice, "finish_reason");
}

void ForeignStream::rename(Json& event) const {
  if (const Json* choices = event.find("choices");
      says_tokens_ && choices != nullptr && choices->is_array()) {
    Json::Array plain;
    for (const Json& choice : choices->as_array()) {
      plain.push_back(choice.is_object() ? without(without(choice, "token_ids"), "prompt_token_ids")
                                         : choice);
    }
    event.set("choices", Json(std::move(plain)));
  }
  if (!is_resumed_) return;
  if (!id_.empty()) event.set("id", Json(id_));
  if (created_) event.set("created", Json(*created_));
  if (!model_.empty()) event.set("model", Json(model_));
  const Json* usage = event.find("usage");
  if (usage == nullptr || !usage->is_object()) return;
  // It takes what was said elsewhere for a part of the prompt.
  Json counted = *usage;
  const auto shift = [&](std::string_view key, int64_t by) {
    const auto count = counted.integer(key);
    if (count) counted.set(key, Json(std::max<int64_t>(*count + by, 0)));
  };
  shift("prompt_tokens", -resumed_said_);
  shift("completion_tokens", resumed_said_);
  event.set("usage", std::move(counted));
}

}  // namespace pelton::gateway
