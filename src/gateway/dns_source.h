// Workers that are found by a name: every address that it has is one, or every host and port of a
// service (SRV records). Names are asked for again and
// again on a thread of its own; what was found last stays as long as a name cannot be resolved
// (FT-29). Owned by the gateway; any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "gateway/config.h"
#include "gateway/dns_lookup.h"
#include "net/url.h"

namespace pelton::gateway {

class DnsSource {
 public:
  // A name's addresses, as text.
  using Resolve = std::function<Result<std::vector<std::string>>(const std::string& host)>;
  static Result<std::vector<std::string>> resolve_by_system(const std::string& host);

  // A service's hosts and ports; and one of these hosts' addresses.
  using ResolveService = std::function<Result<std::vector<SrvTarget>>(const std::string& name,
                                                                      const net::HostPort& server)>;
  using ResolveHost = std::function<Result<std::vector<std::string>>(const std::string& name,
                                                                     const net::HostPort& server)>;

  struct Options {
    std::chrono::milliseconds interval{5'000};
    Resolve resolve = resolve_by_system;
    ResolveService resolve_service = look_up_srv;
    ResolveHost resolve_host = look_up_addresses;  // where `server` is one; else by `resolve`
  };
  // `changed` is called on the source's thread whenever found() has become another. `log` outlives
  // it.
  DnsSource(Options options, std::function<void()> changed, base::Log& log);
  ~DnsSource();
  DnsSource(const DnsSource&) = delete;
  DnsSource& operator=(const DnsSource&) = delete;

  // These names and no others, soon. `server`: who is asked for services; port 0: the system's.
  void set_pools(const std::vector<PoolConfig>& pools, const net::HostPort& server);
  std::vector<WorkerConfig> found() const;

 private:
  struct Name {
    std::string pool;
    std::string host;
    int port = 0;  // 0: of a service, which says it

    auto operator<=>(const Name&) const = default;
  };
  struct Endpoint {
    std::string address;
    int port = 0;

    auto operator<=>(const Endpoint&) const = default;
  };
  using Endpoints = std::vector<Endpoint>;

  void run();
  void look();
  // A service's hosts and the addresses that each had last.
  using Hosts = std::map<std::string, std::vector<std::string>>;

  Result<Endpoints> endpoints_of(const Name& name, const net::HostPort& server);
  Result<Endpoints> endpoints_of_service(const Name& name, const net::HostPort& server);
  // Of one of its hosts; where they cannot be had now, those that it had.
  Result<std::vector<std::string>> addresses_of(const std::string& host, const Hosts& before,
                                                const net::HostPort& server);

  const Options options_;
  const std::function<void()> changed_;
  base::Log& log_;
  mutable std::mutex mutex_;
  std::condition_variable woken_;
  bool stopping_ = false;  // guarded by mutex_, as the next
  bool asked_ = false;     // names are new
  std::vector<Name> names_;
  net::HostPort server_;
  std::map<Name, Endpoints> found_;
  std::map<Name, std::string> troubles_;  // the thread's own, as the next: as logged last
  std::map<Name, Hosts> hosts_;           // of services
  std::set<std::string> unresolved_;      // of their hosts, as the log has it
  std::thread thread_;
};

}  // namespace pelton::gateway
