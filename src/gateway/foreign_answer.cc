#include "gateway/foreign_answer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/json.h"

namespace pelton::gateway {
namespace {

constexpr size_t kEventBytesMax = size_t{16} << 20;
constexpr std::string_view kDone = "[DONE]";

// Whose answers are JSON, whatever their type says: a proxy's page of HTML is none.
constexpr std::array<std::string_view, 5> kJsonPaths = {
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"};
// Fields of an answer that are the server's own affair, or say what only the gateway may say.
constexpr std::array<std::string_view, 6> kOwnFields = {
    "set-cookie", "set-cookie2", "location", "www-authenticate", "x-request-id", "server"};

// How each protocol says that its stream has ended; OpenAI's chats and completions with [DONE].
constexpr std::array<std::string_view, 3> kResponseEnds = {
    "response.completed", "response.incomplete", "response.failed"};

Error bad_answer(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), {}};
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
  return lower;
}

// As far as its ends show.
bool is_object(std::string_view data) {
  while (data.ends_with(' ')) data.remove_suffix(1);
  while (data.starts_with(' ')) data.remove_prefix(1);
  return data.starts_with('{') && data.ends_with('}');
}

cluster::HeaderFields passed(const net::HttpHeaders& headers) {
  cluster::HeaderFields kept;
  for (const auto& [name, value] : headers.fields()) {
    const std::string lower = lower_case(name);
    const bool is_own = std::ranges::find(kOwnFields, lower) != kOwnFields.end() ||
                        lower.starts_with("x-ratelimit-");
    if (!is_own) kept.emplace_back(name, value);
  }
  return kept;
}

// The values of an event's lines of that name, as the specification joins them.
std::string field_of(std::string_view event, std::string_view name) {
  std::string value;
  while (!event.empty()) {
    const size_t end = std::min(event.find('\n'), event.size());
    std::string_view line = event.substr(0, end);
    event.remove_prefix(std::min(end + 1, event.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.starts_with(name) || line.substr(name.size(), 1) != ":") continue;
    line.remove_prefix(name.size() + 1);
    if (line.starts_with(' ')) line.remove_prefix(1);
    value += value.empty() ? line : "\n" + std::string(line);
  }
  return value;
}

// Behind the blank line that ends the first event; npos: it has not come yet.
size_t end_of_event(std::string_view bytes) {
  for (size_t at = bytes.find('\n'); at != std::string_view::npos; at = bytes.find('\n', at + 1)) {
    const std::string_view rest = bytes.substr(at + 1);
    if (rest.starts_with('\n')) return at + 2;
    if (rest.starts_with("\r\n")) return at + 3;
  }
  return std::string_view::npos;
}

}  // namespace

void ForeignAnswer::begin(int status, const net::HttpHeaders& headers) {
  const std::string type = lower_case(headers.get("Content-Type"));
  head_ = {.status = status,
           .headers = passed(headers),
           .streamed = status == 200 && type.starts_with("text/event-stream")};
  is_json_ = expected_.json || type.starts_with("application/json") ||
             std::ranges::find(kJsonPaths, path_) != kJsonPaths.end();
}

Result<std::string> ForeignAnswer::push(std::string_view bytes) {
  if (ended_) return std::string();
  kept_ += bytes;
  if (kept_.size() > (streamed() ? kEventBytesMax : expected_.body_bytes_max)) {
    return bad_answer("an answer without bounds");
  }
  std::string events;
  while (streamed() && !ended_) {
    const size_t end = end_of_event(kept_);
    if (end == std::string::npos) break;
    const std::string_view event = std::string_view(kept_).substr(0, end);
    const std::string data = field_of(event, "data");
    ended_ = is_last(data);
    may_end_ = is_picture(event);
    if (data == kDone && !has_data_) return bad_answer("the stream ended before its first event");
    if (data != kDone && !data.empty() && !is_object(data)) {
      return bad_answer("an event that is no JSON object");
    }
    has_data_ = has_data_ || !data.empty();
    events.append(kept_, 0, end);
    kept_.erase(0, end);
  }
  return events;
}

// OpenAI's image streams just end behind the last picture; engines may say [DONE].
bool ForeignAnswer::is_picture(std::string_view event) const {
  if (!path_.starts_with("/v1/images/")) return false;
  const std::string name = field_of(event, "event");
  if (!name.empty()) return name.ends_with(".completed");
  return event.find(R"(.completed")") != std::string_view::npos;
}

bool ForeignAnswer::is_last(std::string_view data) const {
  if (data == kDone) return true;
  if (path_ != "/v1/responses" && path_ != "/v1/messages") return false;
  const Result<Json> json = Json::parse(data);
  const std::string type = json.ok() ? json->string("type").value_or("") : "";
  if (path_ == "/v1/messages") return type == "message_stop";
  return std::ranges::find(kResponseEnds, type) != kResponseEnds.end();
}

Result<std::string> ForeignAnswer::finish() {
  if (!begun()) return bad_answer("an answer without a head");
  if (streamed()) {
    const bool is_whole = ended_ || (may_end_ && kept_.empty());
    if (!is_whole) return bad_answer("the stream stopped before its end");
    return std::string();
  }
  // A refusal's words are passed on as they are.
  const bool is_success = head_.status >= 200 && head_.status < 300;
  if (is_success && is_json_ && !Json::parse(kept_).ok()) return bad_answer("half a JSON body");
  if (is_success && kept_.empty() && head_.status != 204) return bad_answer("an empty answer");
  return std::exchange(kept_, {});
}

}  // namespace pelton::gateway
