// Of several autoscalers one decides: whoever has the lead in a store that all of them see
// (lead_store.h). The lead's epoch rises from one to the next and fences its orders; what it
// remembers is kept in the store, so that the next one decides as it would have. It leads for as
// long as its lease surely lasts, by its own clock, and never again afterwards.
//
// Owned by the verb; any thread may ask leads(), the rest is the owner's. Two threads of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "launch/fleet_scaler.h"
#include "launch/lead_store.h"

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
  // `lease`: of the store's. `clock` and `log` outlive it.
  Lead(std::unique_ptr<LeadStore> store, std::chrono::seconds lease, SharedClock& clock,
       base::Log& log);
  // Gives the lead up, if it has it, so that another one need not wait.
  ~Lead();
  Lead(const Lead&) = delete;
  Lead& operator=(const Lead&) = delete;

  // Once more: whether it leads now. False: another one does, or the store does not answer.
  bool try_to_lead();
  bool leads() const;
  uint64_t epoch() const { return epoch_; }
  std::chrono::milliseconds look_again() const { return store_->look_again(); }

  // What the last one remembered; the clock is not behind it afterwards.
  Result<std::vector<FleetScaler::Memory>> memories();
  // Written by a thread of its own, so that a slow write does not hold up the lease; what was to be
  // written before and is not yet is passed over.
  void keep(std::vector<FleetScaler::Memory> memories);

 private:
  void renew();
  void write_kept();
  Result<void> write(const std::vector<FleetScaler::Memory>& memories);
  void note(const Result<void>& done);

  const std::unique_ptr<LeadStore> store_;
  const std::chrono::seconds lease_;
  SharedClock& clock_;
  base::Log& log_;
  const std::string name_;
  uint64_t epoch_ = 0;                       // 0: it does not lead
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
