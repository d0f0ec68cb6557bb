// One pool of replicas at the fluid fidelity: no step and no replica of its own, but rates. All
// replicas that serve are alike; rows, prompts that wait and tokens of context are amounts, which
// need not be whole, and flow by the capacity surface (fluid_surface.h) from one moment to the
// next:
//
//   a clock that counts steps:  d steps / dt = (1 - share of the time that prompts take) / step_s,
//
// so a request of O tokens ends O - 1 steps after its first token, which comes when the step that
// runs has ended, the prompts before it have been computed and then its own. How many replicas
// there are says the shipped autoscaler, by the same hands as in the other fidelity
// (pool_control.h): starts, their failures and times are one by one.
//
// Who drives it adds what comes and advances time, from event to event or by ticks. One owner, one
// thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <vector>

#include "simulator/fluid_surface.h"
#include "simulator/pool_control.h"
#include "simulator/simulation.h"

namespace pelton::simulator {

// Requests that are alike and came together; one that is known by a number is alone.
struct FluidParcel {
  double amount = 1;
  double came_s = 0;
  double prompt = 1;    // tokens
  double computed = 1;  // of these, that no cache has
  double output = 1;
  int64_t request = -1;  // whose; -1: of nobody
  int retries = 0;
  double begun_s = -1;   // its first token at a replica that died
  double said = 0;       // tokens there
  double sent_s = -1;    // to a replica
  double first_s = -1;   // its first token
  double spread_s = 0;   // first tokens of an amount come from spread / 2 earlier to as much later
  double first_row = 0;  // steps when that came
};

struct FluidOutcome {
  enum class Kind { kServed, kLost, kLeft };
  Kind kind = Kind::kServed;
  FluidParcel parcel;
  double at_s = 0;
  double output = 0;  // tokens that were said
  const char* why = "";
};

class FluidPool {
 public:
  using Listener = std::function<void(const FluidOutcome&)>;

  // All outlive it. `seed`: of what is drawn here; starts have the simulation's.
  FluidPool(const SimulationOptions& options, const cost_model::StepTimeModel& times,
            double service_s_assumed, const autoscaler::ReplicaModel& model, Listener listener);
  FluidPool(const FluidPool&) = delete;
  FluidPool& operator=(const FluidPool&) = delete;

  // Comes at `came_s`, which is not before now.
  void add(const FluidParcel& parcel) { arrivals_.push({parcel.came_s, orders_++, parcel}); }
  // The moment up to which rates may be taken as they are: a decision, a replica that gets ready.
  double next_change_s() const;
  bool is_empty() const;
  // Until the next arrival or first token, when nothing flows; infinite: nothing comes.
  double next_flow_s() const;
  void advance(double to_s);

  void begin_fault(const Fault& fault);
  void end_fault(const Fault& fault);
  // Some of the replicas that serve, drawn, die at once; where none is scaled they come back after
  // so long.
  int kill(int count, double back_after_s);

  double now_s() const { return now_s_; }
  double rows() const { return rows_; }
  double held() const { return held_amount_; }
  double context() const { return context_ + firsts_context_; }
  int serving() const;  // ready and draining
  int ready() const { return ready_; }
  double slots_each() const { return slots_; }
  bool is_scaled() const { return control_.has_value(); }
  ReplicaCounts counts() const;
  ScalingCounts scaling() const;
  // Share of the time since the beginning in which the KV cache would have been too small.
  double overflow_share() const { return overflow_s_ / std::max(now_s_, 1e-9); }
  int64_t redispatched() const { return redispatched_; }
  int64_t moved() const { return moved_; }

 private:
  struct Timed {
    double at = 0;  // seconds, or steps
    int64_t order = 0;
    FluidParcel parcel;

    friend bool operator>(const Timed& a, const Timed& b) {
      return std::pair(a.at, a.order) > std::pair(b.at, b.order);
    }
  };
  // A heap whose members can be looked at: who dies is among them.
  class Heap {
   public:
    void push(Timed one);
    Timed pop();
    bool empty() const { return all_.empty(); }
    const Timed& top() const { return all_.front(); }
    std::vector<Timed>& all() { return all_; }
    const std::vector<Timed>& all() const { return all_; }
    void restore();

   private:
    std::vector<Timed> all_;
  };
  struct Draining {
    int replica = 0;
    double rows = 0;       // when it began
    double from_rows = 0;  // steps then
    double until_rows = 0;
  };
  struct Coming {
    double at_s = 0;
    int replica = 0;
  };

  // The state that holds for a while.
  struct Flow {
    double rows_each = 0;  // of a replica that has any
    double context = 0;    // of a row
    double step_s = 1;
    double steps_per_s = 0;
    double prompt_tokens_max = 1;  // in a step
    double prompt_rate = 0;        // tokens a second that all replicas compute, while any wait
  };
  void set_flow(double span_s);
  double prompt_share(double span_s);
  void flow_to(double to_s);
  void pass(double to_s);
  void receive(FluidParcel parcel);
  void send_held(double at_s);
  double room() const;
  void send(FluidParcel parcel, double at_s);
  double first_after_s(const FluidParcel& parcel, double draw) const;
  void begin_row(const Timed& first);
  void end_row(const Timed& row);
  void emit(FluidOutcome::Kind kind, const FluidParcel& parcel, double at_s, const char* why);
  void drop_impatient(double at_s);

  // Of a pool that is scaled, and what befalls it (fluid_changes.cc).
  void change();
  void decide();
  void follow_phases();
  void observe();
  void note_drained(double at_s);
  double draining_rows() const;
  double exit_rows(double rows_each) const;
  void lose(double share);
  void lose_one(Timed& one, double share, bool has_begun);
  void count_ready();
  // What gateways count, up to now.
  void count(double at_s);
  void count_served(const FluidOutcome& outcome);

  const SimulationOptions& options_;
  const FluidSurface surface_;
  const double slots_;
  const double kv_tokens_;
  const double overlap_s_;  // shorter steps are planned one ahead
  const Listener listener_;
  std::optional<PoolControl> control_;

  double now_s_ = 0;
  double steps_ = 0;    // of a replica, since the beginning
  double rows_ = 0;     // decoding
  double firsts_ = 0;   // at a replica, without a first token
  double context_ = 0;  // tokens, of all rows
  double firsts_context_ = 0;
  double prompts_ = 0;         // tokens to be computed, of all that were sent
  double prompts_sent_ = 0;    // tokens, since inflow_since_s_
  double prompts_inflow_ = 0;  // a second, before that
  double inflow_since_s_ = 0;
  double backlog_ = 0;      // of these, when time last passed
  double prompt_mean_ = 0;  // tokens computed of one, lately
  bool knows_requests_ = false;
  double service_mean_s_ = 0;
  Flow flow_;
  std::priority_queue<Timed, std::vector<Timed>, std::greater<>> arrivals_;
  std::deque<FluidParcel> held_;
  double held_amount_ = 0;
  Heap first_tokens_;  // by seconds
  Heap row_ends_;      // by steps
  int64_t orders_ = 0;

  std::vector<ReplicaState> states_;
  std::vector<double> down_until_s_;  // where none is scaled
  std::vector<double> slowness_;
  int ready_ = 0;
  double speed_ = 1;  // of a replica on average
  std::vector<Draining> draining_;
  std::vector<Coming> coming_;
  double decides_s_ = std::numeric_limits<double>::infinity();
  double came_ = 0;      // requests, since the beginning
  double done_ = 0;      // whatever became of them
  double unserved_ = 0;  // a part of a request that was served, and not counted yet
  uint64_t draws_ = 0;

  double overflow_s_ = 0;
  double busy_s_ = 0;
  double row_seconds_ = 0;
  double rows_most_ = 0;
  double steps_done_ = 0;
  double tokens_done_ = 0;
  double rows_done_ = 0;
  double prompt_tokens_ = 0;
  double cached_tokens_ = 0;
  int64_t redispatched_ = 0;
  int64_t moved_ = 0;
};

}  // namespace pelton::simulator
