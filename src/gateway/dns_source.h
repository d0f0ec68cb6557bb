// Workers that are found by a name: every address that it has is one. Names are asked for again and
// again on a thread of its own; what was found last stays as long as a name cannot be resolved
// (FT-29). Owned by the gateway; any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "gateway/config.h"

namespace pelton::gateway {

class DnsSource {
 public:
  // A name's addresses, as text.
  using Resolve = std::function<Result<std::vector<std::string>>(const std::string& host)>;
  static Result<std::vector<std::string>> resolve_by_system(const std::string& host);

  struct Options {
    std::chrono::milliseconds interval{5'000};
    Resolve resolve = resolve_by_system;
  };
  // `changed` is called on the source's thread whenever found() has become another. `log` outlives
  // it.
  DnsSource(Options options, std::function<void()> changed, base::Log& log);
  ~DnsSource();
  DnsSource(const DnsSource&) = delete;
  DnsSource& operator=(const DnsSource&) = delete;

  // These names and no others, soon.
  void set_pools(const std::vector<PoolConfig>& pools);
  std::vector<WorkerConfig> found() const;

 private:
  struct Name {
    std::string pool;
    std::string host;
    int port = 0;

    auto operator<=>(const Name&) const = default;
  };
  using Addresses = std::vector<std::string>;

  void run();
  void look();

  const Options options_;
  const std::function<void()> changed_;
  base::Log& log_;
  mutable std::mutex mutex_;
  std::condition_variable woken_;
  bool stopping_ = false;  // guarded by mutex_, as the next
  bool asked_ = false;     // names are new
  std::vector<Name> names_;
  std::map<Name, Addresses> found_;
  std::map<Name, std::string> troubles_;  // the thread's own: the last, as it was logged
  std::thread thread_;
};

}  // namespace pelton::gateway
