#include "apps/bench_lock.h"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

namespace pelton::apps {
namespace {

constexpr const char* kPath = "/tmp/pelton-bench.lock";
constexpr const char* kHeldVariable = "PELTON_BENCH_LOCK_HELD";  // set by tools/alone

Error lock_error() {
  return Error{ErrorCode::kIo, fmt::format("{}: {}", kPath, std::strerror(errno))};
}

}  // namespace

Result<BenchLock> BenchLock::take(const cli::Interrupt* interrupt) {
  if (std::getenv(kHeldVariable) != nullptr) return BenchLock(-1);
  const int file = open(kPath, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return lock_error();
  BenchLock lock(file);
  if (flock(file, LOCK_EX | LOCK_NB) == 0) return lock;
  fmt::print(stderr, "another measurement is running; waiting for it\n");
  while (flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return lock_error();
    if (interrupt != nullptr && interrupt->pending()) {
      return Error{ErrorCode::kCancelled, "interrupted", {}};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return lock;
}

BenchLock::BenchLock(BenchLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}

BenchLock::~BenchLock() {
  if (file_ >= 0) close(file_);
}

}  // namespace pelton::apps
