// Demand for one pool, counted: what gateways' counters gained, in a ring of buckets over a window.
//
// Two windows are read: the whole one (slow) and its end (fast: a quarter, 15 s at most). A
// request's time in service is the time that all requests spent there over the number that finished
// (the maximum-likelihood estimate under censoring), so long answers that still run count.
//
// Example: window 60 s, buckets of 1 s. 2 requests a second come and each takes 8 s: 16 are in
// service; after a minute rate() is 2, concurrency() 16, service_s() 8. Pure; one owner.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "autoscaler/pool_facts.h"
#include "autoscaler/state_json.h"
#include "base/json_writer.h"

namespace pelton::autoscaler {

class Demand {
 public:
  explicit Demand(double window_s);

  // Every gateway's latest report; the order is of no consequence. Reports that were seen before,
  // and counters that fell without a new incarnation, change nothing (`rejected()` counts the
  // latter). Of counters that rose by more than any gateway can count what they gained is counted
  // as nothing, and as rejected.
  void note(std::span<const GatewayReport> reports, int64_t now_ns);

  struct Window {
    double span_s = 0;      // that was observed
    double rate = 0;        // requests received a second
    double in_service = 0;  // on average
    double held = 0;        // on average
    int64_t finished = 0;
    double service_s = 0;  // of a request; 0: none has finished
    ServedSums served;
  };
  // Of the last requests, however long ago: some tens of them.
  struct Lately {
    int64_t finished = 0;
    double service_s = 0;
  };
  Lately lately() const;
  // The last `seconds` before `now_ns`, at most the window.
  Window over(double seconds, int64_t now_ns) const;

  double window_s() const { return window_s_; }
  double fast_s() const;
  // When one was last received. A gateway that is new, or begins anew, may have received one until
  // then, as nobody knows better.
  int64_t last_request_ns() const { return last_request_ns_; }
  int64_t last_report_ns() const { return last_report_ns_; }  // 0: none yet
  int64_t rejected() const { return rejected_; }

  void save(base::JsonWriter& w) const;
  void load(StateReader state);

 private:
  static constexpr int kBuckets = 60;
  struct Bucket {
    int64_t index = -1;  // time / width; another one than asked for: empty
    int64_t requests = 0;
    int64_t finished = 0;
    double in_service_s = 0;
    double held_s = 0;
    double span_s = 0;
    ServedSums served;
  };
  struct Seen {
    uint64_t incarnation = 0;
    uint64_t sequence = 0;
    int64_t requests = 0;
    int64_t finished = 0;
    double in_service_s = 0;
    double held_s = 0;
    ServedSums served;
    int64_t at_ns = 0;  // when that was
  };

  static bool has_leapt(const GatewayReport& report, const Seen& seen, int64_t now_ns);
  Bucket& bucket(int64_t now_ns);
  void note_lately(int64_t finished, double in_service_s);
  bool note_one(const GatewayReport& report, Bucket& bucket, int64_t now_ns);

  const double window_s_;
  const int64_t bucket_ns_;
  std::vector<Bucket> buckets_;
  std::map<std::string, Seen> seen_;  // by gateway
  double lately_finished_ = 0;        // both are halved now and then
  double lately_in_service_s_ = 0;
  int64_t observed_ns_ = 0;  // up to when time has been counted as observed; 0: never
  int64_t last_request_ns_ = 0;
  int64_t last_report_ns_ = 0;
  int64_t rejected_ = 0;
};

}  // namespace pelton::autoscaler
