// What the lines are about that a thread writes: of several models that are loaded, which one.
#pragma once

#include <string>
#include <string_view>

namespace pelton::base {

// While it lives, lines that its thread writes to any log begin with "NAME: "; in JSON they have a
// member "about". One inside another takes its place. Made and destroyed on one thread.
class LogContext {
 public:
  explicit LogContext(std::string_view name);
  ~LogContext();
  LogContext(const LogContext&) = delete;
  LogContext& operator=(const LogContext&) = delete;

  // Of this thread; empty: none.
  static std::string_view current();

 private:
  std::string before_;
};

}  // namespace pelton::base
