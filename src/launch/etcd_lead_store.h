// The lead as a key in etcd under a lease; the key's revision is the epoch.
//
//   PREFIX/autoscaler/lead           who
//   PREFIX/autoscaler/memory/POOL    what it remembers: written only by whoever leads
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/etcd_client.h"
#include "launch/lead_store.h"

namespace pelton::launch {

class EtcdLeadStore final : public LeadStore {
 public:
  struct Options {
    cluster::EtcdClient::Options etcd;
    std::string prefix;
    std::chrono::seconds lease{6};
  };
  explicit EtcdLeadStore(Options options);

  Result<std::optional<Term>> enter(const std::string& name) override;
  Result<std::chrono::nanoseconds> renew() override;
  Result<void> give_up() override;
  std::chrono::milliseconds look_again() const override { return std::chrono::milliseconds(300); }
  Result<std::vector<Entry>> read() override;
  Result<bool> write(const Entry& entry) override;

 private:
  std::string key() const { return options_.prefix + "/autoscaler/lead"; }
  std::string memory_key() const { return options_.prefix + "/autoscaler/memory/"; }

  const Options options_;
  cluster::EtcdClient client_;
  cluster::EtcdClient writing_client_;  // of the thread that writes
  int64_t lease_ = 0;                   // 0: none
  int64_t revision_ = 0;                // of the key; 0: it is not ours
};

}  // namespace pelton::launch
