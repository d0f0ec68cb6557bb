#include "launch/local_launcher.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/descriptor.h"
#include "base/file.h"
#include "launch/process_files.h"

namespace pelton::launch {
namespace {

constexpr size_t kOutputBytesMax = size_t{64} << 10;
constexpr int64_t kResidentStep = 256;  // pages, that count as progress: 1 MiB
constexpr const char* kOrder = "replica";
constexpr const char* kOutput = "out";
constexpr const char* kLog = "log";

Error io_error(const std::string& what) {
  return {ErrorCode::kIo, fmt::format("{}: {}", what, std::strerror(errno)), {}};
}

struct flock whole_file_lock() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// The process that holds the lock; 0: nobody does.
int holder_of(const std::string& file) {
  const base::Descriptor opened(::open(file.c_str(), O_RDWR | O_CLOEXEC));
  if (!opened.ok()) return 0;
  struct flock lock = whole_file_lock();
  if (::fcntl(opened.get(), F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return 0;
  return lock.l_pid;
}

// Between fork and exec: only what is safe there, as other threads' locks may be held for ever.
// Descriptors: the order's file becomes 3 and is locked after all others are closed, since closing
// any descriptor of a file gives up a process's locks on it. The folder's lock, 4, goes after that:
// whoever takes the folder from a launcher that was killed in between finds the replica's.
struct Child {
  const char* program;
  char* const* arguments;
  int order;
  int output;
  int log;
  int folder_lock;

  [[noreturn]] void run() const {
    ::setsid();
    const int nothing = ::open("/dev/null", O_RDONLY);
    // Out of the way of 0 to 3 first.
    const int order_high = ::fcntl(order, F_DUPFD, 16);
    const int output_high = ::fcntl(output, F_DUPFD, 16);
    const int log_high = ::fcntl(log, F_DUPFD, 16);
    const int lock_high = ::fcntl(folder_lock, F_DUPFD, 16);
    const bool is_one_missing = nothing < 0 || order_high < 0 || output_high < 0 || log_high < 0;
    if (is_one_missing || lock_high < 0) ::_exit(126);
    ::dup2(nothing, 0);
    ::dup2(output_high, 1);
    ::dup2(log_high, 2);
    ::dup2(order_high, 3);
    ::dup2(lock_high, 4);
    ::close_range(5, ~0U, 0);
    struct flock lock = whole_file_lock();
    if (::fcntl(3, F_SETLK, &lock) != 0) ::_exit(126);
    ::close(4);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD}) {
      ::signal(number, SIG_DFL);
    }
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::execv(program, arguments);
    constexpr char kSaid[] = "the program cannot be run\n";
    [[maybe_unused]] const ssize_t written = ::write(2, kSaid, sizeof kSaid - 1);
    ::_exit(127);
  }
};

std::string end_text(int status) {
  if (WIFSIGNALED(status)) return fmt::format("ended by signal {}", WTERMSIG(status));
  return "ended with " + exit_text(WEXITSTATUS(status));
}

}  // namespace

Result<std::unique_ptr<LocalLauncher>> LocalLauncher::open(Options options,
                                                           const base::Clock& clock,
                                                           base::Log& log) {
  std::unique_ptr<LocalLauncher> launcher(new LocalLauncher(std::move(options), clock, log));
  TRY_ASSIGN(launcher->folder_lock_, FolderLock::take({.folder = launcher->options_.folder,
                                                       .epoch = launcher->options_.epoch,
                                                       .lead = launcher->options_.lead},
                                                      log));
  launcher->find_earlier();
  return launcher;
}

LocalLauncher::LocalLauncher(Options options, const base::Clock& clock, base::Log& log)
    : options_(std::move(options)), clock_(clock), log_(log) {}

LocalLauncher::~LocalLauncher() = default;

void LocalLauncher::find_earlier() {
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder, failed)) {
    if (entry.path().extension() == ".replica") read_place(entry.path().string());
  }
}

void LocalLauncher::read_place(const std::string& file) {
  const Result<std::string> text = base::read_file(file, kOutputBytesMax);
  const std::optional<WrittenOrder> written = text.ok() ? parse_order(*text) : std::nullopt;
  const Place place = written ? Place{written->order.pool, written->order.ordinal} : Place{};
  if (!written || file_of(place, kOrder) != file) {
    return log_.warning(fmt::format("{} is no replica's file; it is left alone", file));
  }
  newest_token_ = std::max(newest_token_, written->order.token);
  Replica replica;
  replica.seen.order = written->order;
  const int64_t age_ms = std::max<int64_t>(clock_.unix_ms() - written->unix_ms, 0);
  replica.seen.ordered_ns = clock_.now_ns() - age_ms * 1'000'000;
  replica.seen.progress_ns = clock_.now_ns();
  replica.pid = holder_of(file);
  if (replica.pid == 0) {
    replica.seen.state = LaunchedReplica::State::kEnded;
    replica.seen.ended = "ended while nobody looked";
  } else {
    log_.info(fmt::format("replica {}-{} is found again, process {}", place.first, place.second,
                          replica.pid));
    // Of a pool that is no more nothing says how it would be started.
    if (options_.pools.contains(place.first)) {
      replica.seen.outdated = is_program_replaced(replica.pid, options_.program)
                                  ? "another build"
                                  : differing_words(command_line_of(replica.pid), words_for(place));
    }
  }
  replicas_[place] = std::move(replica);
}

std::string LocalLauncher::file_of(const Place& place, const char* ending) const {
  return fmt::format("{}/{}.{}.{}", options_.folder, file_name_of(place.first), place.second,
                     ending);
}

Result<void> LocalLauncher::start(const ReplicaOrder& order) {
  const Place place{order.pool, order.ordinal};
  if (!options_.pools.contains(order.pool) || order.ordinal < 0) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("nothing says how a replica {}-{} is started", order.pool, order.ordinal),
        {}};
  }
  if (const auto known = replicas_.find(place); known != replicas_.end()) {
    look(place, known->second);
    const uint64_t token = known->second.seen.order.token;
    if (token == order.token) return {};
    if (token > order.token) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("the order {} for {}-{} is older than {}", order.token, order.pool,
                               order.ordinal, token),
                   {}};
    }
    if (known->second.pid != 0) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{}-{} still runs", order.pool, order.ordinal),
                   {}};
    }
  }
  if (epoch_of(order.token) < epoch_of(newest_token_)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the order {} for {}-{} is older than the newest, {}", order.token,
                             order.pool, order.ordinal, newest_token_),
                 {}};
  }
  TRY(base::write_file(file_of(place, kOrder),
                       order_text({.order = order, .unix_ms = clock_.unix_ms()})));
  newest_token_ = std::max(newest_token_, order.token);
  TRY_ASSIGN(const int pid, spawn(place));
  const int64_t now_ns = clock_.now_ns();
  Replica replica{.pid = pid, .is_child = true};
  replica.seen.order = order;
  replica.seen.ordered_ns = replica.seen.progress_ns = now_ns;
  replicas_[place] = std::move(replica);
  log_.info(fmt::format("replica {}-{} is started, process {}, log {}", order.pool, order.ordinal,
                        pid, file_of(place, kLog)));
  return {};
}

// A replica's command line, the program first.
std::vector<std::string> LocalLauncher::words_for(const Place& place) const {
  std::vector<std::string> words{options_.program};
  const std::string name = fmt::format("{}-{}", place.first, place.second);
  for (const std::string& word : options_.pools.at(place.first)) {
    words.push_back(word == "{name}" ? name : word);
  }
  return words;
}

Result<int> LocalLauncher::spawn(const Place& place) const {
  const std::string order_file = file_of(place, kOrder);
  const std::string output_file = file_of(place, kOutput);
  const std::string log_file = file_of(place, kLog);
  constexpr int kFresh = O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC;
  const base::Descriptor order(::open(order_file.c_str(), O_RDWR | O_CLOEXEC));
  if (!order.ok()) return io_error(order_file);
  const base::Descriptor output(::open(output_file.c_str(), kFresh, 0600));
  if (!output.ok()) return io_error(output_file);
  const base::Descriptor log(::open(log_file.c_str(), kFresh, 0600));
  if (!log.ok()) return io_error(log_file);

  std::vector<std::string> words = words_for(place);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const Child child{.program = options_.program.c_str(),
                    .arguments = arguments.data(),
                    .order = order.get(),
                    .output = output.get(),
                    .log = log.get(),
                    .folder_lock = folder_lock_->descriptor()};
  const pid_t pid = ::fork();
  if (pid == 0) child.run();
  if (pid < 0) return io_error(fmt::format("a process for {}-{}", place.first, place.second));
  return pid;
}

void LocalLauncher::stop(const ReplicaOrder& order, std::chrono::milliseconds grace) {
  const Place place{order.pool, order.ordinal};
  const auto found = replicas_.find(place);
  if (found == replicas_.end() || found->second.seen.order != order) return;
  Replica& replica = found->second;
  look(place, replica);
  if (replica.pid == 0) return;
  const int64_t kill_ns = clock_.now_ns() + grace.count() * 1'000'000;
  if (replica.seen.state == LaunchedReplica::State::kStopping) {
    replica.kill_ns = std::min(replica.kill_ns, kill_ns);
    return;
  }
  replica.seen.state = LaunchedReplica::State::kStopping;
  replica.kill_ns = kill_ns;
  signal(place, replica, SIGTERM);
}

// Whoever holds the lock now is still the replica once it is looked at again through a descriptor
// of that very process.
void LocalLauncher::signal(const Place& place, const Replica& replica, int number) const {
  if (replica.is_child) {  // not waited for yet, so its id is nobody else's
    ::kill(replica.pid, number);
    return;
  }
  const base::Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, replica.pid, 0)));
  if (!process.ok() || holder_of(file_of(place, kOrder)) != replica.pid) return;
  ::syscall(SYS_pidfd_send_signal, process.get(), number, nullptr, 0);
}

std::vector<LaunchedReplica> LocalLauncher::list() {
  std::vector<LaunchedReplica> all;
  for (auto& [place, replica] : replicas_) {
    look(place, replica);
    all.push_back(replica.seen);
  }
  return all;
}

void LocalLauncher::look(const Place& place, Replica& replica) {
  if (replica.pid == 0) return;
  if (replica.is_child) {
    int status = 0;
    if (::waitpid(replica.pid, &status, WNOHANG) == replica.pid) {
      replica.seen.is_hopeless = WIFEXITED(status) && is_hopeless_exit(WEXITSTATUS(status));
      replica.seen.said = last_said(file_of(place, kLog));
      return note_end(replica, end_text(status));
    }
  } else if (holder_of(file_of(place, kOrder)) != replica.pid) {
    replica.seen.said = last_said(file_of(place, kLog));
    return note_end(replica, "ended");
  }
  if (replica.seen.state == LaunchedReplica::State::kStopping) {
    if (clock_.now_ns() >= replica.kill_ns) signal(place, replica, SIGKILL);
    return;
  }
  if (replica.seen.port == 0) read_address(place, replica);
  note_progress(place, replica);
}

void LocalLauncher::note_end(Replica& replica, const std::string& how) {
  const ReplicaOrder& order = replica.seen.order;
  log_.info(fmt::format("replica {}-{} {}", order.pool, order.ordinal, how));
  replica.pid = 0;
  replica.seen.state = LaunchedReplica::State::kEnded;
  replica.seen.ended = how;
}

// A start advances where it says something, or takes more memory, as one does that loads weights.
// Time that it computes is none: so does one that goes in circles.
void LocalLauncher::note_progress(const Place& place, Replica& replica) {
  const int64_t log_bytes = bytes_of(file_of(place, kLog)) + bytes_of(file_of(place, kOutput));
  const int64_t pages = resident_pages_of(replica.pid);
  const bool advances =
      log_bytes != replica.log_bytes || pages >= replica.resident_pages + kResidentStep;
  if (!advances) return;
  replica.log_bytes = log_bytes;
  replica.resident_pages = pages;
  replica.seen.progress_ns = clock_.now_ns();
}

void LocalLauncher::read_address(const Place& place, Replica& replica) {
  const Result<std::string> text = base::read_file(file_of(place, kOutput), kOutputBytesMax);
  if (!text.ok()) return;
  const std::optional<net::HostPort> address = fleet_address_of(*text);
  if (!address) return;
  replica.seen.host = address->host;
  replica.seen.port = address->port;
}

void LocalLauncher::stop_all(std::chrono::milliseconds grace) {
  constexpr std::chrono::milliseconds kLook{10};
  for (;;) {
    bool some_run = false;
    for (const LaunchedReplica& one : list()) {
      if (one.state == LaunchedReplica::State::kEnded) continue;
      some_run = true;
      stop(one.order, grace);
    }
    if (!some_run) return;
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace pelton::launch
