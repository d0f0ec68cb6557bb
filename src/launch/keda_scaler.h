// The desired replicas of pools for KEDA, as its external push scaler (gRPC): KEDA writes the
// scale, through an HPA from one replica on and by itself between none and one, and the autoscaler
// decides how many. A trigger names its pool:
//
//   triggers: [{type: external-push, metadata: {scalerAddress: "autoscaler:9090", pool: "main"}}]
//
// The metric is the desired number, its target 1 for each replica, so that the HPA's number is
// ours. A pool that is active is announced at once: the first held request wakes it. Only of pools
// that are advised (mode = "advise"): of two that write one scale neither has its way.
//
// Owned by the verb. Threads of gRPC's own, few; a stream takes one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "launch/fleet_scaler.h"

namespace pelton::launch {

class KedaScaler {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    int port = 0;          // 0: any free one
    int streams_max = 16;  // at a time; beyond that RESOURCE_EXHAUSTED
  };
  // Of now. Any thread.
  using States = std::function<std::vector<FleetScaler::PoolState>()>;

  // Errors: kAddressInUse.
  static Result<std::unique_ptr<KedaScaler>> open(const Options& options, States states);
  ~KedaScaler();  // ends all streams
  KedaScaler(const KedaScaler&) = delete;
  KedaScaler& operator=(const KedaScaler&) = delete;

  int port() const { return port_; }

 private:
  class Service;
  KedaScaler();

  std::unique_ptr<Service> service_;
  struct Server;
  std::unique_ptr<Server> server_;
  int port_ = 0;
};

}  // namespace pelton::launch
