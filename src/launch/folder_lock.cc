#include "launch/folder_lock.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launch/process_files.h"

namespace pelton::launch {
namespace {

constexpr int kTries = 50;
constexpr std::chrono::milliseconds kAgain{10};
constexpr std::chrono::milliseconds kDies{5'000};
constexpr size_t kRecordBytesMax = 256;

Error io_error(const std::string& what) {
  return {ErrorCode::kIo, fmt::format("{}: {}", what, std::strerror(errno)), {}};
}

// What this process differs by from each that has had its number, or has it in another
// container or on another machine that sees the folder. Empty: it is not known.
std::string identity_of(int pid, const std::string& lead) {
  const int64_t start = start_ticks_of(pid);
  std::array<char, 64> space{};
  const ssize_t size = ::readlink("/proc/self/ns/pid", space.data(), space.size() - 1);
  const std::string boot = kernel_text("/proc/sys/kernel/random/boot_id");
  if (start <= 0 || size <= 0 || boot.empty()) return "";
  return fmt::format("{} {} {} {}", lead, start, space.data(), boot.substr(0, boot.find('\n')));
}

// Whether it has ended within that time.
bool ends_within(const base::Descriptor& process, std::chrono::milliseconds time) {
  pollfd one{.fd = process.get(), .events = POLLIN, .revents = 0};
  return ::poll(&one, 1, static_cast<int>(time.count())) == 1;
}

// Of the process that the record names, if that is still there and led with an older epoch.
struct Former {
  int pid = 0;
  uint64_t epoch = 0;
};
std::optional<Former> former_leader(int file, const FolderLock::Options& options) {
  std::array<char, kRecordBytesMax> bytes;
  const ssize_t size = ::pread(file, bytes.data(), bytes.size(), 0);
  if (size <= 0) return std::nullopt;
  const std::optional<FolderHolder> holder =
      parse_holder(std::string_view(bytes.data(), static_cast<size_t>(size)));
  if (!holder || holder->epoch == 0 || holder->epoch >= options.epoch ||
      holder->pid == ::getpid()) {
    return std::nullopt;
  }
  const std::string identity = identity_of(holder->pid, options.lead);
  if (identity.empty() || identity != holder->identity) return std::nullopt;
  return Former{holder->pid, holder->epoch};
}

// Its descriptor was opened before it was found to be who is meant, so that no other one is killed.
bool end_former(int file, const FolderLock::Options& options, base::Log& log) {
  const std::optional<Former> former = former_leader(file, options);
  if (!former) return false;
  const base::Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, former->pid, 0)));
  const std::optional<Former> again = former_leader(file, options);
  if (!process.ok() || !again || again->pid != former->pid) return false;
  if (ends_within(process, options.grace)) return true;
  if (!former_leader(file, options)) return true;  // it has given the folder back
  log.warning(
      fmt::format("process {}, which led with epoch {}, still has {} and does not end; "
                  "epoch {} leads, it is killed",
                  former->pid, former->epoch, options.folder, options.epoch));
  if (::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) != 0) {
    log.warning(io_error(fmt::format("process {} cannot be killed", former->pid)).message);
    return false;
  }
  return ends_within(process, kDies);
}

// What the file says is believed, up to whom to end: nobody else may have written it.
Result<void> check_owner(int file, const std::string& name) {
  struct stat is {};
  if (::fstat(file, &is) != 0) return io_error(name);
  constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
  if (S_ISREG(is.st_mode) && is.st_uid == ::geteuid() && (is.st_mode & kOthersWrite) == 0) {
    return {};
  }
  return Error{ErrorCode::kIo,
               name + ": is no file of this user's alone; give state_dir a folder of its own",
               {}};
}

}  // namespace

Result<std::unique_ptr<FolderLock>> FolderLock::take(const Options& options, base::Log& log) {
  std::error_code failed;
  std::filesystem::create_directories(options.folder, failed);
  if (failed) return Error{ErrorCode::kIo, options.folder + ": " + failed.message(), {}};
  const std::string name = options.folder + "/lock";
  const int file = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return io_error(name);
  std::unique_ptr<FolderLock> lock(new FolderLock(file));
  TRY(check_owner(file, name));
  TRY(lock->lock(options, name, log));
  const std::string record = holder_text({.epoch = options.epoch,
                                          .pid = ::getpid(),
                                          .identity = identity_of(::getpid(), options.lead)});
  const auto size = static_cast<ssize_t>(record.size());
  if (::ftruncate(file, 0) != 0 || ::pwrite(file, record.data(), record.size(), 0) != size) {
    return io_error(name);
  }
  return lock;
}

FolderLock::~FolderLock() {
  if (is_held_ && ::ftruncate(file_.get(), 0) != 0) return;
}

// A replica that the last launcher has just forked has the descriptor until it runs its program.
bool FolderLock::try_lock() const {
  for (int i = 0; i < kTries; ++i) {
    if (::flock(file_.get(), LOCK_EX | LOCK_NB) == 0) return true;
    std::this_thread::sleep_for(kAgain);
  }
  return false;
}

Result<void> FolderLock::lock(const Options& options, const std::string& name, base::Log& log) {
  is_held_ =
      try_lock() || (options.epoch > 0 && end_former(file_.get(), options, log) && try_lock());
  if (is_held_) return {};
  return Error{ErrorCode::kAddressInUse,
               fmt::format("another process starts replicas from {}; give this one a folder of its "
                           "own, or end that one (`fuser {}`)",
                           options.folder, name),
               {}};
}

}  // namespace pelton::launch
