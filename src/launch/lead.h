// Of several autoscalers one decides: whoever holds a key in etcd under a lease. The key's revision
// is its epoch, which rises from one to the next and fences its orders; what it remembers is kept
// there, so that the next one decides as it would have. It leads for as long as its lease surely
// lasts, by its own clock, and never again afterwards.
//
//   PREFIX/autoscaler/lead           who
//   PREFIX/autoscaler/memory/POOL    what it remembers: written only by whoever leads
//
// Owned by the verb; any thread may ask leads(), the rest is the owner's. Two threads of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "cluster/etcd_client.h"
#include "launch/fleet_scaler.h"

namespace pelton::launch {

// Calendar time that does not fall: the clocks of two machines agree as well as those are set, so
// that one may go on with what the other has remembered. Any thread.
class SharedClock final : public base::Clock {
 public:
  SharedClock() : offset_ns_((system_.unix_ms() - kBegin_ms) * 1'000'000 - system_.now_ns()) {}
  int64_t now_ns() const override { return system_.now_ns() + offset_ns_.load(); }
  int64_t unix_ms() const override { return system_.unix_ms(); }
  // The other's clock was ahead.
  void advance_to(int64_t ns) {
    if (ns > now_ns()) offset_ns_ += ns - now_ns();
  }

 private:
  // 2020: since 1970 it would be more than states may hold (autoscaler::StateReader).
  static constexpr int64_t kBegin_ms = 1'577'836'800'000;

  const base::SystemClock system_;
  std::atomic<int64_t> offset_ns_;
};

class Lead {
 public:
  struct Options {
    cluster::EtcdClient::Options etcd;
    std::string prefix;
    std::chrono::seconds lease{6};
  };
  // `clock` and `log` outlive it.
  Lead(Options options, SharedClock& clock, base::Log& log);
  // Gives the lead up, if it has it, so that another one need not wait.
  ~Lead();
  Lead(const Lead&) = delete;
  Lead& operator=(const Lead&) = delete;

  // Once more: whether it leads now. False: another one does, or etcd does not answer.
  bool try_to_lead();
  bool leads() const;
  uint64_t epoch() const { return static_cast<uint64_t>(revision_); }

  // What the last one remembered; the clock is not behind it afterwards.
  Result<std::vector<FleetScaler::Memory>> memories();
  // Written by a thread of its own, so that a slow write does not hold up the lease; what was to be
  // written before and is not yet is passed over.
  void keep(std::vector<FleetScaler::Memory> memories);

 private:
  Result<bool> enter();
  void renew();
  void write_kept();
  Result<void> write(const std::vector<FleetScaler::Memory>& memories);
  void note(const Result<void>& done);
  std::string key() const { return options_.prefix + "/autoscaler/lead"; }
  std::string memory_key() const { return options_.prefix + "/autoscaler/memory/"; }

  const Options options_;
  SharedClock& clock_;
  base::Log& log_;
  const std::string name_;
  cluster::EtcdClient client_;
  cluster::EtcdClient writing_client_;       // of the thread that writes
  int64_t lease_ = 0;                        // 0: none
  int64_t revision_ = 0;                     // of the key; 0: it does not lead
  std::string trouble_;                      // of the lease
  std::atomic<int64_t> leads_until_ns_ = 0;  // by the machine's clock
  std::mutex mutex_;
  std::condition_variable woken_;
  bool stopping_ = false;  // guarded by mutex_, as the next two
  bool has_kept_ = false;
  std::vector<FleetScaler::Memory> kept_;
  std::thread renewing_;
  std::thread writing_;
};

}  // namespace pelton::launch
