// From serving to the end: waits for signals, obeys SIGHUP, and lets running answers end. Owned by
// the verb, on its thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "access/admin_gate.h"
#include "apps/reporting.h"
#include "apps/serve_worker.h"
#include "base/log.h"
#include "cli/command_line.h"
#include "cli/interrupt.h"
#include "net/tls_identity.h"

namespace pelton::apps {

// --drain-seconds --drain-delay-seconds --log-level.
std::vector<cli::Flag> life_flags();

base::LogLevel log_level(const cli::Arguments& arguments);

// Of a container's first process: that it has more rights than it needs.
void warn_of_root(base::Log& log);

class LifeCycle {
 public:
  // All outlive it. `tls`: null without.
  struct Parts {
    const cli::Arguments& arguments;
    const cli::Interrupt& interrupt;
    const std::vector<std::unique_ptr<ServeWorker>>& workers;
    Reporting& reporting;
    std::shared_ptr<net::TlsIdentity> tls;
    base::Log& log;
    access::AdminGate& gate;
    access::AuditLog* audit = nullptr;  // null: none is kept
  };
  // Before anybody hears that the server listens: a terminal may be closed from then on.
  explicit LifeCycle(const Parts& parts);

  // Returns when it is time to drain: readiness has been down for --drain-delay-seconds.
  void wait_for_the_end();
  // How long running answers may go on.
  int64_t drain_ms() const;

 private:
  void reload();
  Result<void> try_reload();

  const Parts parts_;
  bool asks_for_keys_;
  const bool asks_for_certificates_;
  const bool had_terminal_;
};

}  // namespace pelton::apps
