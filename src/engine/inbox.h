// How requests come to the engine thread: bounded, and the one place where that thread parks. It
// also counts what was accepted and has not ended, for draining. Any thread may submit; only the
// engine thread receives.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "engine/token_stream.h"
#include "request/generation_request.h"

namespace pelton::engine {

class Inbox {
 public:
  struct Arrival {
    request::GenerationRequest request;
    std::shared_ptr<TokenStream::State> stream;
  };
  struct Delivery {
    std::vector<Arrival> arrivals;
    bool stop = false;
  };

  explicit Inbox(int queued_max) : queued_max_(queued_max) {}

  // kOverloaded, kUnavailable.
  Result<void> submit(Arrival arrival);

  // Engine thread. What has come since the last call; the second waits until there is something.
  Delivery take();
  Delivery wait();

  // Engine thread. One accepted request has had a seat for the first time; one has ended.
  void note_admitted();
  void note_ended(bool was_admitted);

  void close();  // refuses from now on
  void stop();   // and tells the engine thread
  void wait_until_all_ended(std::chrono::milliseconds limit);

 private:
  Delivery deliver();

  const int queued_max_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable all_ended_;
  std::vector<Arrival> arrivals_;
  int queued_ = 0;  // accepted, never had a seat
  int live_ = 0;    // accepted, not ended
  bool closed_ = false;
  bool stopping_ = false;
};

}  // namespace pelton::engine
