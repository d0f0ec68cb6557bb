#include "base/log_context.h"

#include <utility>

namespace pelton::base {
namespace {

constexpr size_t kNameBytesMax = 128;  // beside a message, in a line that fits PIPE_BUF

std::string& name_of_thread() {
  thread_local std::string name;
  return name;
}

}  // namespace

LogContext::LogContext(std::string_view name)
    : before_(std::exchange(name_of_thread(), std::string(name.substr(0, kNameBytesMax)))) {}

LogContext::~LogContext() {
  name_of_thread() = std::move(before_);
}

std::string_view LogContext::current() {
  return name_of_thread();
}

}  // namespace pelton::base
