#include "gateway/dns_source.h"

#include <algorithm>
#include <array>
#include <memory>
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

void DnsSource::set_pools(const std::vector<PoolConfig>& pools) {
  {
    std::lock_guard lock(mutex_);
    names_.clear();
    for (const PoolConfig& pool : pools) {
      if (pool.dns_port > 0) names_.push_back({pool.name, pool.dns_host, pool.dns_port});
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
  for (const auto& [name, addresses] : found_) {
    for (const std::string& address : addresses) {
      workers.push_back({.pool = name.pool, .host = address, .port = name.port, .zone = {}});
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

void DnsSource::look() {
  std::vector<Name> names;
  {
    std::lock_guard lock(mutex_);
    names = names_;
  }
  bool changed = false;
  for (const Name& name : names) {
    Result<Addresses> addresses = options_.resolve(name.host);
    if (addresses.ok() && addresses->empty()) {
      addresses = Error{ErrorCode::kUnavailable, name.host + ": has no address", {}};
    }
    std::string trouble = addresses.ok() ? "" : addresses.error().message;
    std::string& known = troubles_[name];
    if (trouble != known && !trouble.empty()) {
      log_.warning(
          fmt::format("the pool '{}': {}; what was found before stays", name.pool, trouble));
    }
    known = std::move(trouble);
    if (!addresses.ok()) continue;
    std::ranges::sort(*addresses);
    addresses->erase(std::unique(addresses->begin(), addresses->end()), addresses->end());
    std::lock_guard lock(mutex_);
    if (std::ranges::find(names_, name) == names_.end()) continue;
    Addresses& before = found_[name];
    if (before == *addresses) continue;
    before = *std::move(addresses);
    changed = true;
  }
  if (changed) changed_();
}

}  // namespace pelton::gateway
