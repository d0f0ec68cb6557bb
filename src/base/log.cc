#include "base/log.h"

#include <string>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "base/json_writer.h"
#include "base/log_context.h"
#include "base/utc_time.h"

namespace pelton::base {
namespace {

std::string_view level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
    case LogLevel::kNone:
      break;
  }
  return "none";
}

constexpr size_t kMessageBytesMax = 3500;  // a line fits PIPE_BUF

}  // namespace

void Log::write(LogLevel level, std::string_view message) {
  if (!enabled(level)) return;
  message = message.substr(0, kMessageBytesMax);
  std::string line;
  std::lock_guard lock(mutex_);
  if (!has_room()) {
    ++dropped_;
    return;
  }
  const int64_t dropped = std::exchange(dropped_, 0);
  const std::string_view about = LogContext::current();
  if (options_.json) {
    JsonWriter writer(line);
    writer.begin_object();
    writer.key("time").string(utc_time(clock_.unix_ms()));
    writer.key("level").string(level_name(level));
    if (!about.empty()) writer.key("about").string(about);
    writer.key("message").string(message);
    if (dropped > 0) writer.key("lines_dropped_before").integer(dropped);
    writer.end_object();
    line += '\n';
  } else {
    line = fmt::format("{} {:<7} {}{}{}\n", utc_time(clock_.unix_ms()), level_name(level), about,
                       about.empty() ? "" : ": ", message);
  }
  if (dropped > 0 && !options_.json) {
    line.insert(
        0, fmt::format("({} lines before this were not written: nobody read them)\n", dropped));
  }
  // Takes the place of a progress bar.
  if (!options_.json && ::isatty(::fileno(options_.file)) == 1) line.insert(0, "\r\x1b[K");
  std::fwrite(line.data(), 1, line.size(), options_.file);
  std::fflush(options_.file);
  std::clearerr(options_.file);  // a full disk may have room again
}

// A pipe that nobody reads must not stop the server. While poll() says so it takes PIPE_BUF bytes
// without waiting; files always have room, or fail at once.
bool Log::has_room() const {
  pollfd file{::fileno(options_.file), POLLOUT, 0};
  return file.fd < 0 || ::poll(&file, 1, 0) != 0;
}

}  // namespace pelton::base
