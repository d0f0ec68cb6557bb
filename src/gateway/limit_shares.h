// This gateway's share of each key's limits, where several gateways find each other in etcd: each
// writes what was asked of it under a lease, reads what was asked of the others, and takes its part
// (gateway/limit_split.h). While etcd does not answer shares stay as they are; one that was never
// read is the whole. Names in etcd are keyed hashes. Owned by the gateway; a thread of its own, the
// rest on any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "access/api_keys.h"
#include "base/log.h"
#include "base/periodic_thread.h"
#include "cluster/etcd_client.h"
#include "gateway/limit_split.h"

namespace pelton::gateway {

class LimitShares {
 public:
  struct Options {
    cluster::EtcdClient::Options etcd;
    std::string prefix;
    std::string gateway;  // this one's name
    std::string secret;   // of the names
    std::chrono::seconds interval{2};
    std::chrono::seconds lease{10};
  };
  // `log` outlives it.
  LimitShares(Options options, base::Log& log);
  ~LimitShares();
  LimitShares(const LimitShares&) = delete;
  LimitShares& operator=(const LimitShares&) = delete;

  // One request of that key's has come: its limits here, as of now.
  admission::Limits limits_for(const access::Principal& principal);
  // The same, of nobody's request.
  admission::Limits part_of_limits(const access::Principal& principal) const;
  // It will take so many tokens.
  void note_tokens(const access::Principal& principal, int64_t tokens);

  struct Counts {
    size_t gateways = 0;   // that share, this one included; 0: nothing was read yet
    int64_t failures = 0;  // of etcd's, since the start
  };
  Counts counts() const;

 private:
  struct Asked {
    admission::Limits limits;
    int64_t requests = 0;
    int64_t tokens = 0;
  };

  std::string name_of(const access::Principal& principal) const;
  void turn();
  Result<void> exchange();
  LimitDemands take_demands();

  const Options options_;
  base::Log& log_;
  cluster::EtcdClient client_;
  int64_t lease_ = 0;     // the thread's own, as the next
  LimitDemands demands_;  // fading
  bool is_logged_ = false;
  mutable std::mutex mutex_;
  std::map<std::string, Asked> asked_;  // since the last turn; guarded by mutex_, as the next
  GatewayDemands all_;
  int64_t failures_ = 0;
  base::PeriodicThread thread_;
};

}  // namespace pelton::gateway
