// A file of audit lines (access/audit_chain.h) with its head beside it, FILE.head. What is noted is
// on the disk when note() gives it back. At Options::bytes_max the file becomes FILE.N, N being its
// first line's number, and the chain goes on in a new one: nothing is ever deleted. One process has
// it at a time. Owned by the program's entry. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "access/audit_chain.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/periodic_thread.h"
#include "base/result.h"

namespace pelton::access {

class AuditLog {
 public:
  struct Options {
    std::string file;
    std::string key;
    int64_t bytes_max = int64_t{64} << 20;
  };

  // Goes on behind what is there. Errors: kBadConfig, what is there is not whole (a line that was
  // begun when its writer ended is taken out, and that is a line of `log`), or another process
  // writes it; kIo.
  static Result<std::unique_ptr<AuditLog>> open(Options options, const base::Clock& clock,
                                                base::Log& log);
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  // Its date is added. False: it could not be written, as the log says; how many there were so is a
  // line of its own before the next one that can be.
  bool note(AuditEvent event);
  // What may come a thousand times a second: the first one of its kind is written soon, and then
  // one line in ten seconds with how many there were. Never waits for the disk.
  void note_often(const AuditEvent& event);

  int64_t lines() const;
  int64_t failures() const;

 private:
  struct Repeated {
    AuditEvent event;
    int64_t count = 0;
    int64_t due_ns = 0;
  };

  AuditLog(Options options, const base::Clock& clock, base::Log& log, AuditHead head);
  Result<void> reopen();
  Result<void> append(const AuditEvent& event);
  Result<void> begin_file();
  Result<void> write_head(const AuditChain& chain);
  void flush(bool all);

  const Options options_;
  const base::Clock& clock_;
  base::Log& log_;
  mutable std::mutex mutex_;
  AuditChain chain_;  // guarded by mutex_, as the next ones
  base::Descriptor file_;
  int64_t bytes_ = 0;
  int64_t failures_ = 0;
  int64_t lost_ = 0;  // since the last line that was written
  std::mutex repeated_mutex_;
  std::map<std::string, Repeated, std::less<>> repeated_;  // guarded by repeated_mutex_
  std::unique_ptr<base::PeriodicThread> thread_;
};

}  // namespace pelton::access
