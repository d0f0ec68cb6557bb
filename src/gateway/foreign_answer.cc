#include "gateway/foreign_answer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/json.h"

namespace pelton::gateway {
namespace {

constexpr size_t kEventBytesMax = size_t{16} << 20;
constexpr size_t kBodyBytesMax = size_t{256} << 20;

// How each protocol says that its stream has ended; OpenAI's chats and completions with [DONE].
constexpr std::array<std::string_view, 3> kResponseEnds = {
    "response.completed", "response.incomplete", "response.failed"};

Error bad_answer(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), {}};
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
  const std::string_view type = headers.get("Content-Type");
  head_ = {.status = status,
           .headers = headers.fields(),
           .streamed = status == 200 && type.starts_with("text/event-stream")};
  is_json_ = type.starts_with("application/json");
}

Result<std::string> ForeignAnswer::push(std::string_view bytes) {
  if (ended_) return std::string();
  kept_ += bytes;
  if (kept_.size() > (streamed() ? kEventBytesMax : kBodyBytesMax)) {
    return bad_answer("an answer without bounds");
  }
  std::string events;
  while (streamed() && !ended_) {
    const size_t end = end_of_event(kept_);
    if (end == std::string::npos) break;
    ended_ = is_last(std::string_view(kept_).substr(0, end));
    events.append(kept_, 0, end);
    kept_.erase(0, end);
  }
  return events;
}

bool ForeignAnswer::is_last(std::string_view event) const {
  const std::string data = field_of(event, "data");
  if (data == "[DONE]") return true;
  if (path_ != "/v1/responses" && path_ != "/v1/messages") return false;
  const Result<Json> json = Json::parse(data);
  const std::string type = json.ok() ? json->string("type").value_or("") : "";
  if (path_ == "/v1/messages") return type == "message_stop";
  return std::ranges::find(kResponseEnds, type) != kResponseEnds.end();
}

Result<std::string> ForeignAnswer::finish() {
  if (!begun()) return bad_answer("an answer without a head");
  if (streamed()) {
    if (!ended_) return bad_answer("the stream stopped before its end");
    return std::string();
  }
  // A refusal's words are passed on as they are.
  const bool is_success = head_.status >= 200 && head_.status < 300;
  if (is_success && is_json_ && !Json::parse(kept_).ok()) return bad_answer("half a JSON body");
  if (is_success && kept_.empty() && head_.status != 204) return bad_answer("an empty answer");
  return std::exchange(kept_, {});
}

}  // namespace pelton::gateway
