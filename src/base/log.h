// One line a message, text or JSON, on stderr or any file. Owned by the program's entry and passed
// by reference. Any thread may write. Never holds prompts or answers: callers log ids and numbers.
// Where the file is a pipe that is full, lines are dropped and counted: nobody ever waits for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string_view>

#include "base/clock.h"

namespace pelton::base {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kNone };

class Log {
 public:
  struct Options {
    LogLevel level = LogLevel::kInfo;
    bool json = false;
    std::FILE* file = stderr;
  };

  Log(const Clock& clock, const Options& options)
      : clock_(clock), options_(options), level_(options.level) {}

  bool enabled(LogLevel level) const { return level >= level_.load(std::memory_order_relaxed); }
  // Any thread: from now on.
  void set_level(LogLevel level) { level_.store(level, std::memory_order_relaxed); }
  void debug(std::string_view message) { write(LogLevel::kDebug, message); }
  void info(std::string_view message) { write(LogLevel::kInfo, message); }
  void warning(std::string_view message) { write(LogLevel::kWarning, message); }
  void error(std::string_view message) { write(LogLevel::kError, message); }

 private:
  void write(LogLevel level, std::string_view message);
  bool has_room() const;

  const Clock& clock_;
  const Options options_;
  std::atomic<LogLevel> level_;
  std::mutex mutex_;
  int64_t dropped_ = 0;  // under mutex_: lines, since the last that was written
};

}  // namespace pelton::base
