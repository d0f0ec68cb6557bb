#include "apps/rank_restarts.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <optional>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/exit_code.h"
#include "parallel/silence.h"

namespace pelton::apps {
namespace {

constexpr int64_t kHourNs = int64_t{3600} * 1'000'000'000;
// Its group is lost by then (parallel/group.h), and it cannot say so itself.
constexpr int64_t kStoppedMaxNs = 3'000'000'000;
constexpr timespec kLook = {.tv_sec = 0, .tv_nsec = 500'000'000};

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

sigset_t handed_on() {
  sigset_t set;
  sigemptyset(&set);
  for (const int meant : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&set, meant);
  return set;
}

struct End {
  int status = 0;
  bool was_stopped = false;  // somebody asked for it
};

// How long a process has been stopped; nothing: it runs. Time in which this one was stopped, too,
// hardly counts.
using Stopped = std::optional<parallel::Silence>;

// True: it has ended, with that status.
bool has_ended(pid_t process, int& status, Stopped& stopped) {
  while (::waitpid(process, &status, WNOHANG | WUNTRACED | WCONTINUED) == process) {
    if (WIFEXITED(status) || WIFSIGNALED(status)) return true;
    stopped.reset();
    if (WIFSTOPPED(status)) stopped.emplace(now_ns());
  }
  return false;
}

// One that stays stopped keeps its port, and would keep this one from starting another.
void end_stopped(pid_t process, Stopped& stopped, base::Log& log) {
  stopped->look(now_ns(), false);
  if (stopped->ns() < kStoppedMaxNs) return;
  log.error(fmt::format("the server (process {}) has been stopped for {:.1f} s; it is killed",
                        process, static_cast<double>(stopped->ns()) * 1e-9));
  ::kill(process, SIGKILL);
  stopped.reset();
}

// Signals are blocked here, and wait to be asked for.
End wait_for(pid_t process, base::Log& log) {
  const sigset_t set = handed_on();
  End end;
  Stopped stopped;
  while (true) {
    siginfo_t info{};
    const int came = stopped ? ::sigtimedwait(&set, &info, &kLook) : ::sigwaitinfo(&set, &info);
    if (came == SIGCHLD && has_ended(process, end.status, stopped)) return end;
    if (stopped) end_stopped(process, stopped, log);
    if (came < 0 || came == SIGCHLD) continue;
    if (came != SIGHUP) end.was_stopped = true;
    // What a terminal sends it sends to both.
    if (info.si_code != SI_KERNEL) ::kill(process, came);
  }
}

std::string how_ended(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was killed by signal {}", WTERMSIG(status));
  return fmt::format("ended with code {}", WEXITSTATUS(status));
}

int code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// A rank was lost, or is not there yet: another host may be starting anew as well. What a flag, a
// file or a machine is wrong about has exit codes of its own, and stays wrong.
bool is_loss(int status) {
  if (WIFSIGNALED(status)) return true;
  return WEXITSTATUS(status) == cli::kExitStuck || WEXITSTATUS(status) == cli::kExitFailure;
}

}  // namespace

bool HourlyBound::take(int64_t now_ns) {
  while (!taken_ns_.empty() && now_ns - taken_ns_.front() >= kHourNs) taken_ns_.pop_front();
  if (static_cast<int64_t>(taken_ns_.size()) >= most_) return false;
  taken_ns_.push_back(now_ns);
  return true;
}

Result<void> start_anew_when_lost(const cli::Arguments& arguments, base::Log& log) {
  const int64_t most = arguments.integer("--rank-restarts");
  if (most == 0) return {};
  HourlyBound bound(most);
  std::signal(SIGCHLD, SIG_DFL);  // one that is ignored, as it may be inherited, is never heard of
  const sigset_t set = handed_on();
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &set, &before);
  while (true) {
    std::fflush(nullptr);
    const pid_t own = ::getpid();
    const pid_t process = ::fork();
    if (process < 0) {
      ::sigprocmask(SIG_SETMASK, &before, nullptr);
      return Error{ErrorCode::kIo, fmt::format("--rank-restarts: fork: {}", std::strerror(errno))};
    }
    if (process == 0) {
      // Who is gone cannot start it anew, and would be missed.
      if (::prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || ::getppid() != own) _exit(cli::kExitFailure);
      ::sigprocmask(SIG_SETMASK, &before, nullptr);
      return {};
    }
    const End end = wait_for(process, log);
    const bool may = is_loss(end.status) && !end.was_stopped;
    if (!may || !bound.take(now_ns())) {
      if (may) {
        log.error(
            fmt::format("the server {}; it was started anew {} times within an hour, which is "
                        "all that --rank-restarts allows",
                        how_ended(end.status), most));
      }
      std::fflush(nullptr);
      _exit(code_of(end.status));
    }
    log.warning(fmt::format("the server {}; it is started anew", how_ended(end.status)));
  }
}

}  // namespace pelton::apps
