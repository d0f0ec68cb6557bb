#include "mcp/processes.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"

namespace pelton::mcp {
namespace {

using std::chrono::steady_clock;

constexpr int kTickMs = 50;
constexpr int kReadsMax = 16;  // of one program, before others have their turn
constexpr std::array<const char*, 5> kInherited = {"PATH", "HOME", "LANG", "TZ", "TMPDIR"};

void close_if_open(int& descriptor) {
  if (descriptor >= 0) ::close(std::exchange(descriptor, -1));
}

struct Pipe {
  int read = -1;
  int write = -1;
};
Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return Error{ErrorCode::kIo, fmt::format("no pipe: {}", std::strerror(errno)), ""};
  }
  return Pipe{ends[0], ends[1]};
}

std::vector<std::string> environment() {
  std::vector<std::string> kept;
  for (const char* name : kInherited) {
    if (const char* value = std::getenv(name)) kept.push_back(fmt::format("{}={}", name, value));
  }
  return kept;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> made;
  for (std::string& text : texts) made.push_back(text.data());
  made.push_back(nullptr);
  return made;
}

// A group of its own, default signals, the two pipes and nothing else.
int spawn(std::vector<std::string> words, const Pipe& in, const Pipe& out, pid_t& pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write, 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  std::vector<std::string> variables = environment();
  const int error = ::posix_spawnp(&pid, words.front().c_str(), &actions, &attributes,
                                   pointers(words).data(), pointers(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

std::string end_of(int status) {
  if (WIFSIGNALED(status)) return fmt::format("it was ended by signal {}", WTERMSIG(status));
  return fmt::format("it has ended with exit code {}", WEXITSTATUS(status));
}

}  // namespace

Processes::Processes() {
  const Result<Pipe> pipe = make_pipe();
  CHECK(pipe.ok());
  wake_read_ = pipe->read;
  wake_write_ = pipe->write;
  ::fcntl(wake_read_, F_SETFL, O_NONBLOCK);
  ::fcntl(wake_write_, F_SETFL, O_NONBLOCK);
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "pelton-tools");
    run();
  });
}

Processes::~Processes() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake();
  thread_.join();
  for (auto& [id, process] : processes_) {
    ::kill(-process.pid, SIGKILL);
    ::waitpid(process.pid, nullptr, 0);
    close_if_open(process.in);
    close_if_open(process.out);
  }
  ::close(wake_read_);
  ::close(wake_write_);
}

void Processes::wake() const {
  static_cast<void>(::write(wake_write_, "", 1));
}

Result<Processes::Id> Processes::start(const std::vector<std::string>& words, const Bounds& bounds,
                                       Events events) {
  CHECK(!words.empty());
  TRY_ASSIGN(const Pipe in, make_pipe());
  Result<Pipe> out = make_pipe();
  if (!out.ok()) {
    ::close(in.read);
    ::close(in.write);
    return out.error();
  }
  pid_t pid = 0;
  const int error = spawn(words, in, *out, pid);
  ::close(in.read);
  ::close(out->write);
  if (error != 0) {
    ::close(in.write);
    ::close(out->read);
    return Error{error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                 fmt::format("'{}' cannot be started: {}", words.front(), std::strerror(error)),
                 ""};
  }
  ::fcntl(in.write, F_SETFL, O_NONBLOCK);
  ::fcntl(out->read, F_SETFL, O_NONBLOCK);
  Id id = 0;
  {
    const std::lock_guard lock(mutex_);
    id = ++last_id_;
    processes_.emplace(id, Process{.pid = pid,
                                   .in = in.write,
                                   .out = out->read,
                                   .bounds = bounds,
                                   .events = std::make_shared<const Events>(std::move(events))});
  }
  wake();
  return id;
}

void Processes::send(Id id, std::string_view line) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = processes_.find(id);
    if (found == processes_.end() || found->second.in < 0) return;
    Process& process = found->second;
    if (process.unread.size() + line.size() > process.bounds.unread_bytes_max) {
      close_input(process);
    } else {
      process.unread += line;
      process.unread += '\n';
    }
  }
  wake();
}

void Processes::end(Id id) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = processes_.find(id);
    if (found == processes_.end()) return;
    found->second.events = nullptr;
    close_input(found->second);
  }
  wake();
}

// From here on it has so long to end by itself.
void Processes::close_input(Process& process) {
  close_if_open(process.in);
  process.unread.clear();
  if (std::exchange(process.is_ending, true)) return;
  process.kill_at = steady_clock::now() + process.bounds.end_time_max;
}

int Processes::count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(processes_.size());
}

void Processes::run() {
  while (true) {
    wait_for_some();
    std::vector<Happened> happened;
    {
      const std::lock_guard lock(mutex_);
      if (is_stopping_) return;
      happened = look();
    }
    // Not under the lock: they may send.
    for (const Happened& one : happened) emit(one);
    run_timers();
  }
}

void Processes::emit(const Happened& happened) {
  try {
    for (const std::string& line : happened.lines) happened.events->on_line(line);
    if (!happened.ended.empty()) happened.events->on_end(happened.ended);
  } catch (const std::bad_alloc&) {
    // That answer is lost; its call ends by its deadline.
  }
}

void Processes::run_at(steady_clock::time_point time, std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    timers_.emplace(time, std::move(work));
  }
  wake();
}

void Processes::run_timers() {
  while (true) {
    Timers::node_type due;
    {
      const std::lock_guard lock(mutex_);
      if (timers_.empty() || timers_.begin()->first > steady_clock::now()) return;
      due = timers_.extract(timers_.begin());
    }
    try {
      due.mapped()();
    } catch (const std::bad_alloc&) {
      due.key() = steady_clock::now() + std::chrono::milliseconds(kTickMs);
      const std::lock_guard lock(mutex_);
      timers_.insert(std::move(due));
    }
  }
}

void Processes::wait_for_some() {
  std::vector<pollfd> descriptors = {{wake_read_, POLLIN, 0}};
  int wait_ms = -1;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, process] : processes_) {
      if (process.out >= 0) descriptors.push_back({process.out, POLLIN, 0});
      if (process.in >= 0 && !process.unread.empty()) {
        descriptors.push_back({process.in, POLLOUT, 0});
      }
    }
    if (!processes_.empty()) {
      wait_ms = kTickMs;
    } else if (!timers_.empty()) {
      const auto left = timers_.begin()->first - steady_clock::now();
      wait_ms =
          static_cast<int>(std::clamp<int64_t>(left / std::chrono::milliseconds(1) + 1, 0, 60'000));
    }
  }
  ::poll(descriptors.data(), descriptors.size(), wait_ms);
  char ignored[64];
  while (::read(wake_read_, ignored, sizeof ignored) > 0) {
  }
}

std::vector<Processes::Happened> Processes::look() {
  std::vector<Happened> all;
  for (auto at = processes_.begin(); at != processes_.end();) {
    Process& process = at->second;
    Happened happened{.events = process.events};
    read_from(process, happened);
    write_to(process);
    const bool is_gone = is_over(process, happened);
    if (happened.events != nullptr) all.push_back(std::move(happened));
    at = is_gone ? processes_.erase(at) : std::next(at);
  }
  return all;
}

// So much at most, since others wait for their turn.
void Processes::read_from(Process& process, Happened& happened) {
  char bytes[16 * 1024];
  ssize_t count = -1;
  errno = EAGAIN;
  size_t searched = process.line.size();
  for (int turn = 0; turn < kReadsMax && process.out >= 0; ++turn) {
    count = ::read(process.out, bytes, sizeof bytes);
    if (count <= 0) break;
    if (process.events != nullptr) process.line.append(bytes, static_cast<size_t>(count));
  }
  size_t begin = 0;
  for (size_t end = 0; (end = process.line.find('\n', searched)) != std::string::npos;) {
    happened.lines.push_back(process.line.substr(begin, end - begin));
    begin = searched = end + 1;
  }
  process.line.erase(0, begin);
  if (process.line.size() > process.bounds.line_bytes_max) {
    close_input(process);
    process.kill_at = steady_clock::now();
    process.line.clear();
    process.why = fmt::format("its answer is larger than {} bytes, the most that is read",
                              process.bounds.line_bytes_max);
  }
  const bool is_closed = count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
  if (!is_closed || process.out < 0) return;
  close_if_open(process.out);
  close_input(process);  // it can say nothing more
}

void Processes::write_to(Process& process) {
  while (process.in >= 0 && !process.unread.empty()) {
    // Its end may be closed: SIGPIPE is this program's to ignore, which every verb does.
    const ssize_t count = ::write(process.in, process.unread.data(), process.unread.size());
    if (count > 0) {
      process.unread.erase(0, static_cast<size_t>(count));
    } else if (errno == EAGAIN || errno == EINTR) {
      return;
    } else {
      close_input(process);
    }
  }
}

bool Processes::is_over(Process& process, Happened& happened) {
  int status = 0;
  const pid_t waited = ::waitpid(process.pid, &status, WNOHANG);
  // Where SIGCHLD is ignored, as a parent may have left it, nobody keeps how it ended; and its
  // number may be another's by now.
  const bool is_unknown = waited < 0 && errno == ECHILD;
  if (waited == process.pid || is_unknown) {
    // What it has started ends with it.
    if (!is_unknown) ::kill(-process.pid, SIGKILL);
    close_if_open(process.in);
    close_if_open(process.out);
    happened.ended = !process.why.empty() ? process.why
                     : is_unknown         ? "it has ended"
                                          : end_of(status);
    return true;
  }
  if (process.is_ending && steady_clock::now() >= process.kill_at) {
    ::kill(-process.pid, SIGKILL);
  }
  return false;
}

}  // namespace pelton::mcp
