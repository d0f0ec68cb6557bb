#include "gateway/dns_source.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <pthread.h>
#include <sys/socket.h>

#include "net/url.h"

namespace pelton::gateway {

Result<std::vector<std::string>> DnsSource::resolve_by_system(const std::string& host) {
  const addrinfo hints{.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* list = nullptr;
  if (const int code = ::getaddrinfo(host.c_str(), nullptr, &hints, &list); code != 0) {
    return Error{ErrorCode::kUnavailable, fmt::format("{}: {}", host, ::gai_strerror(code)), {}};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(list, ::freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (::getnameinfo(one->ai_addr, one->ai_addrlen, text.data(), text.size(), nullptr, 0,
                      NI_NUMERICHOST) == 0) {
      addresses.emplace_back(text.data());
    }
  }
  return addresses;
}

DnsSource::DnsSource(Options options, std::function<void()> changed, base::Log& log)
    : options_(std::move(options)),
      changed_(std::move(changed)),
      log_(log),
      thread_([this] { run(); }) {
  pthread_setname_np(thread_.native_handle(), "pelton-dns");
}

DnsSource::~DnsSource() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_all();
  thread_.join();
}

void DnsSource::set_pools(const std::vector<PoolConfig>& pools, const net::HostPort& server) {
  {
    std::lock_guard lock(mutex_);
    names_.clear();
    server_ = server;
    for (const PoolConfig& pool : pools) {
      if (pool.dns_port > 0) names_.push_back({pool.name, pool.dns_host, pool.dns_port});
      if (!pool.dns_service.empty()) names_.push_back({pool.name, pool.dns_service, 0});
    }
    std::erase_if(found_, [&](const auto& one) {
      return std::ranges::find(names_, one.first) == names_.end();
    });
    asked_ = true;
  }
  woken_.notify_all();
}

std::vector<WorkerConfig> DnsSource::found() const {
  std::lock_guard lock(mutex_);
  std::vector<WorkerConfig> workers;
  for (const auto& [name, endpoints] : found_) {
    for (const auto& [address, port] : endpoints) {
      workers.push_back({.pool = name.pool, .host = address, .port = port, .zone = {}});
    }
  }
  return workers;
}

void DnsSource::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    woken_.wait_for(lock, options_.interval, [&] { return stopping_ || asked_; });
    if (stopping_) return;
    asked_ = false;
    lock.unlock();
    look();
    lock.lock();
  }
}

// Those of the lowest priority: others are for when none of these is there, and a fleet's workers
// say themselves whether they are. One whose host cannot be resolved now keeps the addresses that
// it had, as long as the service names it (FT-29); one that never had any is passed over.
Result<DnsSource::Endpoints> DnsSource::endpoints_of_service(const Name& name,
                                                             const net::HostPort& server) {
  TRY_ASSIGN(std::vector<SrvTarget> targets, options_.resolve_service(name.host, server));
  int lowest = INT32_MAX;
  for (const SrvTarget& target : targets) lowest = std::min(lowest, target.priority);
  Endpoints endpoints;
  std::optional<Error> trouble;
  Hosts& before = hosts_[name];
  Hosts hosts;
  for (const SrvTarget& target : targets) {
    if (target.priority != lowest) continue;
    const Result<std::vector<std::string>> addresses = addresses_of(target.host, before, server);
    if (!addresses.ok()) {
      trouble = addresses.error();
      continue;
    }
    hosts[target.host] = *addresses;
    for (const std::string& address : *addresses) endpoints.push_back({address, target.port});
  }
  before = std::move(hosts);
  if (endpoints.empty() && trouble) return *std::move(trouble);
  return endpoints;
}

Result<std::vector<std::string>> DnsSource::addresses_of(const std::string& host,
                                                         const Hosts& before,
                                                         const net::HostPort& server) {
  constexpr size_t kUnresolvedMax = 1024;
  Result<std::vector<std::string>> addresses =
      server.port == 0 ? options_.resolve(host) : options_.resolve_host(host, server);
  if (addresses.ok() && !addresses->empty()) {
    unresolved_.erase(host);
    return addresses;
  }
  const auto known = before.find(host);
  if (known == before.end()) return addresses;
  if (unresolved_.size() < kUnresolvedMax && unresolved_.insert(host).second) {
    const std::string why = addresses.ok() ? host + ": has no address" : addresses.error().message;
    log_.warning(fmt::format("{}; the addresses that it had stay", why));
  }
  return known->second;
}

Result<DnsSource::Endpoints> DnsSource::endpoints_of(const Name& name,
                                                     const net::HostPort& server) {
  if (name.port == 0) return endpoints_of_service(name, server);
  TRY_ASSIGN(std::vector<std::string> addresses, options_.resolve(name.host));
  Endpoints endpoints;
  for (std::string& address : addresses) endpoints.push_back({std::move(address), name.port});
  return endpoints;
}

void DnsSource::look() {
  std::vector<Name> names;
  net::HostPort server;
  {
    std::lock_guard lock(mutex_);
    names = names_;
    server = server_;
  }
  const auto is_gone = [&](const auto& one) {
    return std::ranges::find(names, one.first) == names.end();
  };
  std::erase_if(troubles_, is_gone);
  std::erase_if(hosts_, is_gone);
  bool changed = false;
  for (const Name& name : names) {
    Result<Endpoints> endpoints = endpoints_of(name, server);
    if (endpoints.ok() && endpoints->empty()) {
      endpoints = Error{ErrorCode::kUnavailable, name.host + ": has no address", {}};
    }
    std::string trouble = endpoints.ok() ? "" : endpoints.error().message;
    std::string& known = troubles_[name];
    if (trouble != known && !trouble.empty()) {
      log_.warning(
          fmt::format("the pool '{}': {}; what was found before stays", name.pool, trouble));
    }
    known = std::move(trouble);
    if (!endpoints.ok()) continue;
    std::ranges::sort(*endpoints);
    endpoints->erase(std::unique(endpoints->begin(), endpoints->end()), endpoints->end());
    std::lock_guard lock(mutex_);
    if (std::ranges::find(names_, name) == names_.end()) continue;
    Endpoints& before = found_[name];
    if (before == *endpoints) continue;
    before = *std::move(endpoints);
    changed = true;
  }
  if (changed) changed_();
}

}  // namespace pelton::gateway
