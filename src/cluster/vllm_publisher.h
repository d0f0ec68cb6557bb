// Publishes what a prefix cache holds as vLLM's workers do: a ZMQ PUB socket, where batches of
// events (cluster/vllm_events.h) follow an empty topic and their number. Whoever connects hears
// what is published from then on; what a slow reader has no room for it does not hear, and its
// numbers show it. Owned by whoever publishes, on one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/vllm_events.h"

namespace pelton::cluster {

class VllmPublisher {
 public:
  // "tcp://*:5557", "tcp://127.0.0.1:*" (any free port). Errors: kInvalidArgument, kAddressInUse.
  static Result<std::unique_ptr<VllmPublisher>> bind(const std::string& endpoint);
  ~VllmPublisher();
  VllmPublisher(const VllmPublisher&) = delete;
  VllmPublisher& operator=(const VllmPublisher&) = delete;

  // Where it is, with the port that was found: "tcp://127.0.0.1:34567".
  const std::string& endpoint() const { return endpoint_; }
  void publish(const std::vector<VllmEvent>& events, VllmForm form, double unix_s);

 private:
  VllmPublisher(void* context, void* socket, std::string endpoint)
      : context_(context), socket_(socket), endpoint_(std::move(endpoint)) {}

  void* const context_;
  void* const socket_;
  const std::string endpoint_;
  int64_t next_ = 0;
};

}  // namespace pelton::cluster
