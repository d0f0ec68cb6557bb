#include "cli/interrupt.h"

#include <atomic>
#include <cerrno>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "base/check.h"
#include "cli/exit_code.h"
#include "cli/hang_up.h"

namespace pelton::cli {
namespace {

// A signal handler can reach nothing but globals; these are the only ones of the program.
std::atomic<int> signal_seen{0};
std::atomic<bool> hang_up_seen{false};
std::atomic<bool> further_ignored{false};
int wake_pipe[2] = {-1, -1};
struct sigaction interrupt_before, terminate_before, hang_up_before;

void on_signal(int signal) {
  const int saved_errno = errno;
  if (signal == SIGHUP) {
    hang_up_seen = true;
  } else {
    const int before = signal_seen.exchange(signal);
    const bool passed_on = before == SIGINT && signal == SIGTERM;
    if (before != 0 && !passed_on && !further_ignored) _exit(128 + signal);
  }
  const char byte = 1;
  // A full pipe means that a wake-up is waiting already.
  [[maybe_unused]] const ssize_t written = write(wake_pipe[1], &byte, 1);
  errno = saved_errno;
}

// Empties the pipe; what comes after it wakes the next poll.
void take_wakes() {
  char bytes[64];
  while (read(wake_pipe[0], bytes, sizeof bytes) > 0) {
  }
}

void sleep_until_woken() {
  pollfd wake{.fd = wake_pipe[0], .events = POLLIN, .revents = 0};
  poll(&wake, 1, -1);
}

}  // namespace

Interrupt::Interrupt(HangUp hang_up) {
  CHECK(wake_pipe[0] == -1, "one Interrupt at a time");
  CHECK(pipe2(wake_pipe, O_CLOEXEC | O_NONBLOCK) == 0);
  signal_seen = 0;
  further_ignored = false;
  struct sigaction action {};
  action.sa_handler = on_signal;  // no SA_RESTART: a blocked read returns, so that loops can look
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &interrupt_before);
  sigaction(SIGTERM, &action, &terminate_before);
  hang_up_seen = false;
  sigaction(SIGHUP, nullptr, &hang_up_before);
  if (hang_up == HangUp::kReported) sigaction(SIGHUP, &action, nullptr);
}

Interrupt::~Interrupt() {
  sigaction(SIGINT, &interrupt_before, nullptr);
  sigaction(SIGTERM, &terminate_before, nullptr);
  sigaction(SIGHUP, &hang_up_before, nullptr);
  close(wake_pipe[0]);
  close(wake_pipe[1]);
  wake_pipe[0] = wake_pipe[1] = -1;
}

bool Interrupt::pending() const {
  return signal_seen != 0;
}
bool Interrupt::by_terminate() const {
  return signal_seen == SIGTERM;
}

void Interrupt::wait() const {
  while (!pending()) {
    sleep_until_woken();
    take_wakes();
  }
}

Interrupt::Event Interrupt::next() const {
  for (;;) {
    if (pending()) return Event::kStop;
    if (take_hang_up()) return Event::kHangUp;
    sleep_until_woken();
    take_wakes();
  }
}

bool take_hang_up() {
  return hang_up_seen.exchange(false);
}

void Interrupt::ignore_further() {
  further_ignored = true;
}

void Interrupt::clear() {
  take_wakes();
  signal_seen = 0;
}

}  // namespace pelton::cli
