#include "base/line_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/stat.h>
#include <unistd.h>

namespace pelton::base {

std::string LineFile::Written::why() const {
  return std::strerror(error);
}

LineFile::Written LineFile::write(std::string_view lines) {
  Written written;
  rest_.erase(0, write_some(rest_, written.error));
  const size_t done = rest_.empty() ? write_some(lines, written.error) : 0;
  const size_t whole = done == 0 ? 0 : lines.rfind('\n', done - 1) + 1;
  const std::string_view unwritten = lines.substr(whole);
  written.lost = std::count(unwritten.begin(), unwritten.end(), '\n');
  if (done > whole && !take_back(done - whole)) {
    rest_ = lines.substr(done, lines.find('\n', done) + 1 - done);
    --written.lost;
  }
  return written;
}

// As many bytes of them as there is room for.
size_t LineFile::write_some(std::string_view bytes, int& error) const {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t taken = ::write(descriptor_, bytes.data() + done, bytes.size() - done);
    if (taken < 0 && errno == EINTR) continue;
    if (taken <= 0) {
      error = errno;
      return done;
    }
    done += static_cast<size_t>(taken);
  }
  return done;
}

// The last bytes of a file, if they are still the last: others may write to it too.
bool LineFile::take_back(size_t bytes) const {
  struct stat file {};
  const off_t end = ::lseek(descriptor_, 0, SEEK_CUR);
  if (fstat(descriptor_, &file) != 0 || !S_ISREG(file.st_mode) || file.st_size != end) return false;
  const off_t kept = end - static_cast<off_t>(bytes);
  return ftruncate(descriptor_, kept) == 0 && ::lseek(descriptor_, kept, SEEK_SET) == kept;
}

}  // namespace pelton::base
