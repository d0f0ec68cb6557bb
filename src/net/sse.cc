#include "net/sse.h"

#include <algorithm>

#include "base/check.h"

namespace pelton::net {

void append_sse_data(std::string& out, std::string_view data) {
  while (true) {
    const size_t end = std::min(data.find_first_of("\r\n"), data.size());
    out += "data: ";
    out += data.substr(0, end);
    out += '\n';
    if (end == data.size()) break;
    const bool pair = data[end] == '\r' && end + 1 < data.size() && data[end + 1] == '\n';
    data.remove_prefix(end + (pair ? 2 : 1));
  }
  out += '\n';
}

void append_sse_event(std::string& out, std::string_view event, std::string_view data) {
  CHECK(event.find_first_of("\r\n") == std::string_view::npos);
  out += "event: ";
  out += event;
  out += '\n';
  append_sse_data(out, data);
}

void append_sse_comment(std::string& out, std::string_view comment) {
  CHECK(comment.find_first_of("\r\n") == std::string_view::npos);
  out += ": ";
  out += comment;
  out += "\n\n";
}

Result<void> SseParser::feed(std::string_view bytes,
                             base::FunctionRef<void(const SseEvent&)> on_event) {
  const Error too_large{ErrorCode::kInvalidArgument,
                        "a server-sent event is larger than the limit of " +
                            std::to_string(options_.event_bytes_max) + " bytes",
                        {}};
  while (!failed_ && !bytes.empty()) {
    if (after_cr_ && bytes.front() == '\n') bytes.remove_prefix(1);
    after_cr_ = false;
    const size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
    const size_t held = line_.size() + event_.data.size() + event_.event.size() + event_.id.size();
    failed_ = held + end > options_.event_bytes_max;
    if (failed_) break;
    line_ += bytes.substr(0, end);
    if (end == bytes.size()) return {};
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    take_line(line_, on_event);
    line_.clear();
  }
  if (failed_) {
    line_ = {};
    event_ = {};
    return too_large;
  }
  return {};
}

void SseParser::take_line(std::string_view line,
                          base::FunctionRef<void(const SseEvent&)> on_event) {
  if (at_start_ && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  at_start_ = false;
  if (line.empty()) {
    if (has_data_) on_event(event_);
    event_.event.clear();
    event_.data.clear();
    has_data_ = false;
    return;
  }
  const size_t colon = std::min(line.find(':'), line.size());
  const std::string_view field = line.substr(0, colon);
  std::string_view value = line.substr(std::min(colon + 1, line.size()));
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "data") {
    if (has_data_) event_.data += '\n';
    event_.data += value;
    has_data_ = true;
  } else if (field == "event") {
    event_.event = value;
  } else if (field == "id" && value.find('\0') == std::string_view::npos) {
    event_.id = value;  // stays for the events after it, as the standard says
  }
}

}  // namespace pelton::net
