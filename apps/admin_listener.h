// The operator's listener of `pelton serve`: there if --admin-port is given. Owned by the verb.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "access/admin_gate.h"
#include "access/audit_log.h"
#include "base/log.h"
#include "cli/command_line.h"
#include "net/http_server.h"
#include "server/admin_server.h"
#include "server/live_console.h"

namespace pelton::apps {

std::vector<cli::Flag> admin_flags();

class AdminListener {
 public:
  // What `parts` refers to and the log outlive it.
  AdminListener(server::AdminServer::Parts parts, base::Log& log)
      : services_(parts.services), public_(parts.listener), admin_(std::move(parts)), log_(log) {}

  // `tls`: null without. Of several replicas each has a port of its own (listener_flags.h).
  // `audit`: null: none is kept; it outlives this, as `gate`.
  Result<void> open(const cli::Arguments& arguments, int replica,
                    std::shared_ptr<const net::TlsIdentity> tls, access::AuditLog* audit,
                    const access::AdminGate& gate);
  // Before what it reports on goes away.
  void close();

  // For stdout; empty if it is closed.
  std::string line() const;

 private:
  void open_console(const cli::Arguments& arguments, bool tls);

  const server::Services& services_;
  const net::HttpServer& public_;
  server::AdminServer admin_;
  std::unique_ptr<server::LiveConsole> console_;  // null: there is none
  base::Log& log_;
  std::string host_;
  bool tls_ = false;
  std::unique_ptr<net::HttpServer> http_;
};

}  // namespace pelton::apps
