#include "base/log.h"

#include <string>

#include <fmt/format.h>

#include "base/json_writer.h"
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

}  // namespace

void Log::write(LogLevel level, std::string_view message) {
  if (!enabled(level)) return;
  std::string line;
  if (options_.json) {
    JsonWriter writer(line);
    writer.begin_object();
    writer.key("time").string(utc_time(clock_.unix_ms()));
    writer.key("level").string(level_name(level));
    writer.key("message").string(message);
    writer.end_object();
    line += '\n';
  } else {
    line = fmt::format("{} {:<7} {}\n", utc_time(clock_.unix_ms()), level_name(level), message);
  }
  std::lock_guard lock(mutex_);
  std::fwrite(line.data(), 1, line.size(), options_.file);
  std::fflush(options_.file);
}

}  // namespace pelton::base
