// Server-sent events, both ways. Text in, text out; no sockets.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "base/result.h"

namespace pelton::net {

// "data: ...\n\n". Line breaks in `data` make several "data:" lines, so that one event stays one.
void append_sse_data(std::string& out, std::string_view data);
// With an "event:" line before it. `event` has no line breaks.
void append_sse_event(std::string& out, std::string_view event, std::string_view data);
// ": ...\n\n", which every reader ignores: a heartbeat.
void append_sse_comment(std::string& out, std::string_view comment);

struct SseEvent {
  std::string event;  // empty: a plain "message"
  std::string data;   // lines joined by "\n"
  std::string id;
};

// Takes the stream in pieces of any size. Owned by one reader. Memory is bounded by the limit.
class SseParser {
 public:
  struct Options {
    size_t event_bytes_max = 4 * 1024 * 1024;
  };

  explicit SseParser(const Options& options) : options_(options) {}

  // Error: kInvalidArgument if an event is larger than the limit; then the parser is done for.
  Result<void> feed(std::string_view bytes, base::FunctionRef<void(const SseEvent&)> on_event);

 private:
  void take_line(std::string_view line, base::FunctionRef<void(const SseEvent&)> on_event);

  const Options options_;
  std::string line_;  // begun, not ended
  SseEvent event_;
  bool has_data_ = false;
  bool at_start_ = true;   // a byte order mark may come
  bool after_cr_ = false;  // a "\n" now belongs to the line break before it
  bool failed_ = false;
};

}  // namespace pelton::net
