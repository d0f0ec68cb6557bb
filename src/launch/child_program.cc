#include "launch/child_program.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sanitized.h"

extern char** environ;

namespace pelton::launch {
namespace {

constexpr size_t kErrBytesMax = size_t{16} << 10;
constexpr size_t kPiece = size_t{16} << 10;
// While nothing comes: whether it has ended.
constexpr std::chrono::milliseconds kLook{20};

// Both ends of a pipe, closed when it goes.
struct Pipe {
  std::array<int, 2> ends = {-1, -1};
  enum class Kind { kPipe, kSockets };
  explicit Pipe(Kind kind = Kind::kPipe) {
    const int failed = kind == Kind::kPipe
                           ? ::pipe2(ends.data(), O_CLOEXEC)
                           : ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data());
    if (failed != 0) ends = {-1, -1};
  }
  ~Pipe() {
    shut(0);
    shut(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void shut(size_t end) {
    if (ends[end] >= 0) ::close(ends[end]);
    ends[end] = -1;
  }
};

struct Child {
  pid_t pid = 0;
  // Sockets, as writing to one whose reader has gone need not raise a signal.
  Pipe in{Pipe::Kind::kSockets};
  Pipe out;
  Pipe err;

  Result<void> start(const std::vector<std::string>& words,
                     std::span<const std::string_view> left_out);
  int wait() const;
  std::optional<int> wait_until(std::chrono::steady_clock::time_point deadline) const;
  void end() const { ::kill(-pid, SIGKILL); }
};

// Of this process's, without those that begin so.
std::vector<char*> environment_without(std::span<const std::string_view> left_out) {
  std::vector<char*> all;
  for (char** one = environ; *one != nullptr; ++one) {
    const bool is_left_out = std::ranges::any_of(left_out, [&](std::string_view beginning) {
      return std::string_view(*one).starts_with(beginning);
    });
    if (!is_left_out) all.push_back(*one);
  }
  all.push_back(nullptr);
  return all;
}

Result<void> Child::start(const std::vector<std::string>& words,
                          std::span<const std::string_view> left_out) {
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, in.ends[0], 0);
  ::posix_spawn_file_actions_adddup2(&files, out.ends[1], 1);
  ::posix_spawn_file_actions_adddup2(&files, err.ends[1], 2);
  posix_spawnattr_t how;
  ::posix_spawnattr_init(&how);
  sigset_t none;
  ::sigemptyset(&none);
  sigset_t usual;
  ::sigemptyset(&usual);
  for (const int number : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::sigaddset(&usual, number);
  ::posix_spawnattr_setsigmask(&how, &none);
  ::posix_spawnattr_setsigdefault(&how, &usual);
  ::posix_spawnattr_setpgroup(&how, 0);  // a group of its own, which is ended as a whole
  ::posix_spawnattr_setflags(
      &how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> copies = words;
  std::vector<char*> arguments;
  for (std::string& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const std::vector<char*> environment = environment_without(left_out);
  const int failed =
      ::posix_spawnp(&pid, arguments[0], &files, &how, arguments.data(), environment.data());
  ::posix_spawnattr_destroy(&how);
  ::posix_spawn_file_actions_destroy(&files);
  in.shut(0);
  out.shut(1);
  err.shut(1);
  if (failed == 0) return {};
  return Error{failed == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
               fmt::format("{} cannot be run: {}", words[0], std::strerror(failed)),
               {}};
}

int code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int Child::wait() const {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return code_of(status);
}

// None: it has not ended by then. Who closes all its ends is about to, so it is looked for often.
std::optional<int> Child::wait_until(std::chrono::steady_clock::time_point deadline) const {
  for (;;) {
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) == pid) return code_of(status);
    if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

// What has come; closes the end where no more will.
void read_piece(Pipe& pipe, size_t bytes_max, std::string& into) {
  std::array<char, kPiece> piece;
  const ssize_t count = ::read(pipe.ends[0], piece.data(), piece.size());
  if (count > 0) {
    const size_t room = bytes_max - std::min(bytes_max, into.size());
    into.append(piece.data(), std::min(static_cast<size_t>(count), room));
  } else if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
    pipe.shut(0);
  }
}

void write_piece(Pipe& pipe, std::string_view& input) {
  const ssize_t count =
      input.empty() ? 0
                    : ::send(pipe.ends[1], input.data(), input.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (count > 0) input.remove_prefix(static_cast<size_t>(count));
  // Who does not want all of it has closed.
  const bool is_broken = count < 0 && errno != EINTR && errno != EAGAIN;
  if (input.empty() || is_broken) pipe.shut(1);
}

// A moment after it has begun: what it had allocated by then is little. Should this process be
// killed before it ends, it still has no more than its time.
void hold_back(pid_t pid, const ProgramBounds& bounds) {
  if (bounds.memory_bytes_max > 0 && !base::kSanitized) {
    const rlimit memory{.rlim_cur = static_cast<rlim_t>(bounds.memory_bytes_max),
                        .rlim_max = static_cast<rlim_t>(bounds.memory_bytes_max)};
    ::prlimit(pid, RLIMIT_DATA, &memory, nullptr);
    const auto seconds =
        static_cast<rlim_t>(std::chrono::ceil<std::chrono::seconds>(bounds.time_max).count());
    const rlimit time{.rlim_cur = seconds, .rlim_max = seconds};
    ::prlimit(pid, RLIMIT_CPU, &time, nullptr);
  }
  if (bounds.nice != 0) ::setpriority(PRIO_PROCESS, static_cast<id_t>(pid), bounds.nice);
}

}  // namespace

Result<ProgramRun> run_program(const std::vector<std::string>& words, std::string_view input,
                               const ProgramBounds& bounds,
                               std::span<const std::string_view> left_out) {
  Child child;
  TRY(child.start(words, left_out));
  hold_back(child.pid, bounds);
  ProgramRun run;
  const auto deadline = std::chrono::steady_clock::now() + bounds.time_max;
  const auto give_up = [&](ErrorCode code, const std::string& why) {
    child.end();
    child.wait();
    return Error{code, fmt::format("{} {}", words[0], why), {}};
  };
  // Once it has ended only what it wrote is read: what it has started may hold its ends open.
  std::optional<int> code;
  while (child.out.ends[0] >= 0 || child.err.ends[0] >= 0 || child.in.ends[1] >= 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0 && code) break;
    if (left.count() <= 0) {
      return give_up(ErrorCode::kDeadline,
                     fmt::format("has not ended within {} ms", bounds.time_max.count()));
    }
    if (bounds.is_given_up != nullptr && *bounds.is_given_up) {
      return give_up(ErrorCode::kCancelled, "was given up");
    }
    // A descriptor of -1 is passed over.
    std::array<pollfd, 3> ends = {{{child.out.ends[0], POLLIN, 0},
                                   {child.err.ends[0], POLLIN, 0},
                                   {child.in.ends[1], POLLOUT, 0}}};
    const auto pause = code ? std::chrono::milliseconds(0) : std::min(left, kLook);
    const int count = ::poll(ends.data(), ends.size(), static_cast<int>(pause.count()));
    if (count == 0 && code) break;
    if (count == 0) code = child.wait_until({});
    if (ends[0].revents != 0) read_piece(child.out, bounds.bytes_max + 1, run.out);
    if (ends[1].revents != 0) read_piece(child.err, kErrBytesMax, run.err);
    if (ends[2].revents != 0) write_piece(child.in, input);
    if (run.out.size() > bounds.bytes_max) {
      return give_up(ErrorCode::kIo, fmt::format("prints more than {} bytes", bounds.bytes_max));
    }
  }
  if (!code) code = child.wait_until(deadline);
  if (!code) {
    return give_up(ErrorCode::kDeadline,
                   fmt::format("has not ended within {} ms", bounds.time_max.count()));
  }
  run.code = *code;
  return run;
}

}  // namespace pelton::launch
