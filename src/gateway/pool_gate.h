// The gateway's side of a pool whose replicas come and go, or whose workers take only so many
// requests at once (media_config.h): counts what is asked of it, and holds requests while no
// replica takes them. What is counted are sums since the gateway began (autoscaler/pool_facts.h),
// so that whoever reads them may miss some.
//
// A request is held when no replica is ready, or others are held already, or, if it takes one of so
// many slots, when none is free: then it waits for its turn, fair between tenants and in order
// within one, and goes on when a replica has a free slot for it. It is not given to a replica
// before, so one that becomes ready first serves it.
//
// Before the last replica goes it is retired: from then on requests are held although it is there,
// and the report says so. A retirement that is not renewed ends, so that an autoscaler that has
// died holds nobody up.
//
// Any thread; one lock. Listeners are called without it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "admission/fair_queue.h"
#include "autoscaler/pool_announcement.h"
#include "autoscaler/pool_facts.h"
#include "base/clock.h"
#include "gateway/scaling_config.h"

namespace pelton::gateway {

// What the pool's replicas take now.
struct PoolSupply {
  int ready = 0;       // replicas
  int free_slots = 0;  // of these
  int slots = 0;       // likewise, taken or not
  int jobs = 0;        // that they do although their requests are answered: videos
};

class HeldRequest {
 public:
  virtual ~HeldRequest() = default;
  virtual void on_released() = 0;  // its turn has come; PoolGate::note_passed() is due
  virtual void on_start_failed() = 0;
};

class PoolGate {
 public:
  // `on_demand`: a request has come that no replica takes, and none did before. They outlive it.
  PoolGate(ScalingConfig config, const base::Clock& clock, std::function<void()> on_demand);
  // Of a pool whose workers are there or not, and take so many at once: nobody starts any.
  PoolGate(const HoldConfig& hold, const base::Clock& clock);

  // Where a request is.
  enum class Place { kNone, kHeld, kInService, kOver };
  void note_request();
  void note_refused();
  void move(Place from, Place to);
  // Of one that a single replica has answered.
  void note_served(const autoscaler::ServedSums::Request& request);

  // Whether a request that comes now is held.
  bool holds(const PoolSupply& supply) const;
  // Whether it goes to a replica at once; then note_passed() is due.
  enum class Takes { kWhatThereIs, kSlot };
  bool passes(const PoolSupply& supply, Takes takes);
  struct Held {
    std::string tenant;
    double weight = 1;
    int64_t bytes = 0;
    int64_t wait_max_ns = 0;  // it would rather be refused
    std::weak_ptr<HeldRequest> request;
    Takes takes = Takes::kWhatThereIs;
  };
  // Why not: `retry_after_s` is when it would be otherwise.
  struct Refusal {
    std::string_view code;  // of the error; static
    std::string message;
    double retry_after_s = 0;
    int status = 503;
  };
  // Its number, for leave(). None: it is refused. `supply` matters to one that takes a slot.
  std::optional<int64_t> enter(Held held, Refusal& refusal, const PoolSupply& supply = {});
  // Of one that has waited as long as requests are held.
  Refusal refuse_late(Takes takes, const PoolSupply& supply);
  // Of one that asked not to be held.
  Refusal refuse_cold();
  void leave(int64_t number);
  void note_passed();
  // As many as there are free slots go on.
  void release(const PoolSupply& supply);

  void retire(uint64_t retirement);
  // With a failure all that are held are refused.
  void announce(const autoscaler::PoolAnnouncement& announcement);
  autoscaler::PoolAnnouncement announcement() const;
  autoscaler::GatewayReport report(const std::string& gateway);
  struct Counts {
    int held = 0;         // now
    int64_t entered = 0;  // since the gateway began, as the next
    int64_t refused = 0;
  };
  Counts counts() const;

  const ScalingConfig& config() const { return config_; }
  // Whether replicas are started for what it holds.
  bool is_scaled() const { return is_scaled_; }
  HoldConfig hold() const;
  // From the next request on; of one that is not scaled.
  void set_hold(const HoldConfig& hold);

 private:
  struct Waiting {
    Held held;
    admission::FairQueue::Item item;
  };

  bool is_retired(int64_t now_ns) const;
  bool holds_now(const PoolSupply& supply) const;
  void pass(int64_t now_ns);
  void count(Place place, int by);
  double wait_s() const;
  double slot_wait_s(const PoolSupply& supply) const;
  Refusal refuse_full(const PoolSupply& supply, std::string why) const;
  std::optional<Refusal> refusal_of(const Held& held, const PoolSupply& supply) const;
  std::weak_ptr<HeldRequest> take(int64_t number);

  const ScalingConfig config_;
  const bool is_scaled_;
  const base::Clock& clock_;
  const std::function<void()> on_demand_;
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  HoldConfig hold_;
  admission::FairQueue queue_{admission::FairQueue::Options{}};
  std::map<int64_t, Waiting> waiting_;  // by number
  int64_t numbers_ = 0;
  int64_t bytes_ = 0;  // of those
  int passing_ = 0;    // released, and not at a replica yet
  int jobs_ = 0;       // PoolSupply's, as it was last
  autoscaler::GatewayReport report_;
  int64_t refused_ = 0;
  bool is_wanted_ = false;  // by one that was refused, since the last report
  int64_t passed_ns_;       // up to when the integrals go
  uint64_t retirement_ = 0;
  int64_t retired_ns_ = 0;  // when that was last said
  autoscaler::PoolAnnouncement announcement_;
};

}  // namespace pelton::gateway
