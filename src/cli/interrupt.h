// Ctrl-C and SIGTERM as something to ask or to wait for. While one lives, the first signal only
// sets a flag; a second Ctrl-C ends the process at once with 130. One at a time in a process:
// signals are the process's own, so their flag has to be too.
#pragma once

namespace pelton::cli {

class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool pending() const;       // any thread
  bool by_terminate() const;  // it was SIGTERM

  // Blocks until a signal comes; returns at once if one is pending.
  void wait() const;

  // Forgets the signal, for a chat that goes on after Ctrl-C stopped an answer.
  void clear();
};

}  // namespace pelton::cli
