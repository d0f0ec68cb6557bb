#include "base/output_file.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace pelton::base {
namespace {

Error cannot(const std::string& path) {
  const char* why = errno == ENXIO ? "it is a pipe that nobody reads" : std::strerror(errno);
  return Error{ErrorCode::kIo, fmt::format("{} cannot be written: {}", path, why)};
}

}  // namespace

Result<OutputFile> open_output(const std::string& path, OutputMode mode) {
  const int how = mode == OutputMode::kAppend ? O_APPEND : O_TRUNC;
  // O_NONBLOCK: to open a pipe would wait for its reader. Writing may wait again.
  const int file =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | how, 0666);
  if (file < 0) return cannot(path);
  const int flags = ::fcntl(file, F_GETFL);
  if (flags >= 0) ::fcntl(file, F_SETFL, flags & ~O_NONBLOCK);
  std::FILE* const opened = ::fdopen(file, mode == OutputMode::kAppend ? "a" : "w");
  if (opened != nullptr) return OutputFile(opened);
  const Error error = cannot(path);
  ::close(file);
  return error;
}

Result<void> reopen_output(std::FILE* file, const std::string& path) {
  TRY_ASSIGN(const OutputFile fresh, open_output(path, OutputMode::kAppend));
  // In place of the old one at once: no write falls between the two.
  if (::dup3(::fileno(fresh.get()), ::fileno(file), O_CLOEXEC) < 0) return cannot(path);
  return {};
}

}  // namespace pelton::base
