// Asks the gateways of other regions again and again what they have (region_summary.h), and says it
// to the fleet, where each of them stands for a worker of every pool. Nothing on a request's way
// waits for it. Owned by the gateway; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/periodic_thread.h"
#include "gateway/fleet.h"
#include "gateway/region_config.h"
#include "gateway/region_summary.h"
#include "net/http_client.h"

namespace pelton::gateway {

class RegionWatch {
 public:
  // All outlive it.
  RegionWatch(Fleet& fleet, const base::Clock& clock);
  ~RegionWatch();
  RegionWatch(const RegionWatch&) = delete;
  RegionWatch& operator=(const RegionWatch&) = delete;

  // These and no others from now on.
  void set(const RegionsConfig& regions);

  struct Row {
    std::string name;
    std::string gateway;  // HOST:PORT
    double egress_per_gb = 0;
    double round_trip_s = 0;  // 0: not measured yet
    int64_t age_ms = -1;      // of what it said last; -1: nothing yet
    std::string trouble;      // of the last time; empty: none
    RegionModels models;
  };
  std::vector<Row> rows() const;

 private:
  struct Peer {
    RegionConfig config;
    RegionView view;
    bool asking = false;
    int64_t heard_ns = 0;
    double round_trip_s = 0;
    std::string trouble;
  };
  struct Answer {
    int status = 0;
    std::string body;
    std::string mac;
    std::string nonce;
    std::string secret;
    int64_t sent_ns = 0;
    int64_t dispatched = 0;  // of the fleet, then
    int64_t begun_ns = 0;    // of the answer
  };
  void turn();
  void ask(const std::shared_ptr<Peer>& peer);
  void on_answer(const std::shared_ptr<Peer>& peer, const Answer& answer,
                 const Result<void>& result);

  Fleet& fleet_;
  const base::Clock& clock_;
  mutable std::mutex mutex_;
  std::string secret_;  // guarded by mutex_, as the next and what it holds
  std::vector<std::shared_ptr<Peer>> peers_;
  // From the first region on; null before. Made by set(), which one thread calls at a time.
  std::unique_ptr<net::HttpClient> client_;
  std::unique_ptr<base::PeriodicThread> ticker_;
};

}  // namespace pelton::gateway
