// What lies between gateways and replicas: when a message that one of them sends reaches the other
// one. As TCP has it, which both use: a message that is lost is sent again after 200 ms and then
// after twice as long each time, so it is late and not gone; through a cut nothing passes, and what
// was sent meanwhile comes when the first copy behind its end does; after sixteen copies the
// connection is given up. Between replicas (shared_links.h) nothing is lost. Of one simulation; one
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "simulator/fault.h"

namespace pelton::simulator {

// As asked of a simulation.
struct NetworkOptions {
  double round_trip_s = 0;  // half of it each way
  double loss = 0;          // share of the copies of messages that are lost, below 1
  bool is_on() const { return round_trip_s > 0 || loss > 0; }
  // Errors: kInvalidArgument.
  Result<void> check() const;
};

struct NetworkCounts {
  int64_t messages = 0;
  int64_t copies_lost = 0;  // each sent again
  int64_t cut_off = 0;      // messages of which a copy met a cut
  int64_t given_up = 0;     // that never came
  int64_t found_down = 0;   // replicas, by a gateway that no longer heard them
  int64_t stood_still = 0;  // connections of requests, while the replica was heard
  int64_t taken_back = 0;   // requests, from replicas that were cut off or stood still
  int64_t sent_back = 0;    // requests that reached a replica which had died or begun anew
  int64_t waited = 0;       // requests for which no replica could be reached
  int64_t ignored = 0;      // messages of replicas that nobody asked any more
};

class Network {
 public:
  struct Options {
    NetworkOptions asked;
    uint64_t seed = 0;
    int replicas = 1;
  };
  // `faults`: those of the network among them; they outlive it.
  Network(const Options& options, const std::vector<Fault>& faults);

  // When what one of the two sends the other one at `now_ns` arrives; none: never.
  std::optional<int64_t> arrives_ns(int64_t now_ns, int gateway, int replica);

  NetworkCounts& counts() { return counts_; }

 private:
  // Of one connection at one moment.
  struct Weather {
    bool is_cut = false;
    double loss = 0;
    double delay_s = 0;
  };
  Weather weather(int64_t at_ns, int gateway, int replica) const;

  const Options options_;
  std::vector<std::vector<const Fault*>> faults_;  // by replica
  uint64_t drawn_ = 0;
  NetworkCounts counts_;
};

}  // namespace pelton::simulator
