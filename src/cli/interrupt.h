// Ctrl-C and SIGTERM as something to ask or to wait for. While one lives, the first signal only
// sets a flag; a second one ends the process at once with 128 and its number, but for a SIGTERM
// after Ctrl-C: a terminal's wrapper passes on what the terminal has sent us already (and unless
// the verb asks for patience). One at a time in a process: signals are the process's own, so their
// flag has to be too.
#pragma once

namespace pelton::cli {

class Interrupt {
 public:
  enum class HangUp {
    kEndsUs,    // SIGHUP as ever
    kReported,  // next() says
  };
  explicit Interrupt(HangUp hang_up);
  Interrupt() : Interrupt(HangUp::kEndsUs) {}
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool pending() const;       // any thread
  bool by_terminate() const;  // it was SIGTERM

  // Blocks until a signal comes; returns at once if one is pending.
  void wait() const;
  // The same, also until a SIGHUP comes; each is reported once, those of one moment as one.
  enum class Event { kStop, kHangUp };
  Event next() const;

  // From now on a second signal is no more than the first one: for a verb that cleans up behind
  // processes of its own, within bounded time.
  void ignore_further();

  // Forgets the signal, for a chat that goes on after Ctrl-C stopped an answer.
  void clear();
};

}  // namespace pelton::cli
