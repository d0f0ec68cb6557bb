// The operator's listener of `pelton serve`: there if --admin-port is given. Owned by the verb.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "cli/command_line.h"
#include "net/http_server.h"
#include "server/admin_server.h"

namespace pelton::apps {

std::vector<cli::Flag> admin_flags();

class AdminListener {
 public:
  // What `parts` refers to and the log outlive it.
  AdminListener(server::AdminServer::Parts parts, base::Log& log)
      : admin_(std::move(parts)), log_(log) {}

  // `tls`: null without. Of several replicas each has a port of its own (listener_flags.h).
  Result<void> open(const cli::Arguments& arguments, int replica,
                    std::shared_ptr<const net::TlsIdentity> tls);
  // Before what it reports on goes away.
  void close();

  // For stdout; empty if it is closed.
  std::string line() const;

 private:
  server::AdminServer admin_;
  base::Log& log_;
  std::string host_;
  bool tls_ = false;
  std::unique_ptr<net::HttpServer> http_;
};

}  // namespace pelton::apps
