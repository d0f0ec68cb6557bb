// What several gateways that find each other in etcd say of their roll-outs: each writes how far
// its own have come, and what it has seen of requests, under a lease, and reads the others'. So all
// decide on what all have seen, and what one has taken back all take back. While etcd does not
// answer each goes on with what it has heard last. Owned by the gateway; a thread of its own.
#pragma once

#include <chrono>
#include <string>

#include "base/log.h"
#include "base/periodic_thread.h"
#include "cluster/etcd_client.h"
#include "gateway/rollouts.h"

namespace pelton::gateway {

class RolloutShares {
 public:
  struct Options {
    cluster::EtcdClient::Options etcd;
    std::string prefix;
    std::string gateway;  // this one's name
    std::chrono::seconds interval{2};
    std::chrono::seconds lease{10};
  };
  // `rollouts` and `log` outlive it.
  RolloutShares(Options options, Rollouts& rollouts, base::Log& log);
  ~RolloutShares();
  RolloutShares(const RolloutShares&) = delete;
  RolloutShares& operator=(const RolloutShares&) = delete;

 private:
  void turn();
  Result<void> exchange();

  const Options options_;
  Rollouts& rollouts_;
  base::Log& log_;
  cluster::EtcdClient client_;
  int64_t lease_ = 0;  // the thread's own, as the next ones
  std::string said_;   // under that lease
  bool is_failing_ = false;
  base::PeriodicThread thread_;
};

}  // namespace pelton::gateway
