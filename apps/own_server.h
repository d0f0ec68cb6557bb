// A server of this verb's own, `pelton serve MODEL` or another verb that listens, on a free port of
// this machine, for verbs that ask one. It ends with its owner, and with this process however that
// ends. One thread, the verb's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "base/result.h"
#include "cli/interrupt.h"

namespace pelton::apps {

class OwnServer {
 public:
  // Waits until it answers; its log goes to this process's stderr. `flags`: further words of its
  // command line. Errors: kUnavailable if it ends before, kIo, kCancelled by `interrupt`.
  static Result<OwnServer> start(const std::string& model, const std::vector<std::string>& flags,
                                 const cli::Interrupt& interrupt);
  // The same of any verb that prints where it listens: `words` behind the program's name.
  static Result<OwnServer> start(const std::vector<std::string>& words,
                                 const cli::Interrupt& interrupt);
  ~OwnServer();
  OwnServer(OwnServer&& other) noexcept;
  OwnServer& operator=(OwnServer&&) = delete;

  const std::string& url() const { return url_; }  // "http://127.0.0.1:PORT"
  // The rest of the line that begins so, of those that came with the URL's; empty: there is none.
  std::string said(std::string_view beginning) const;
  // Of all its threads so far. Errors: kIo.
  Result<double> cpu_seconds() const;

 private:
  explicit OwnServer(pid_t pid) : pid_(pid) {}

  pid_t pid_;  // -1: moved from
  std::string url_;
  std::string said_;
};

// This very program's file. Errors: kIo.
Result<std::string> own_program();

}  // namespace pelton::apps
