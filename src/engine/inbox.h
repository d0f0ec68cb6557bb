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
#include "engine/admission_queue.h"
#include "engine/outbox.h"
#include "engine/token_stream.h"
#include "request/generation_request.h"

namespace pelton::engine {

class Inbox {
 public:
  struct Arrival {
    request::GenerationRequest request;
    std::vector<std::shared_ptr<TokenStream::State>> streams;  // one an answer; at least one
    int64_t queued_ns = 0;
    std::shared_ptr<Outbox> outbox;  // of the streams; null: each is called for itself
  };
  struct Delivery {
    std::vector<Arrival> arrivals;
    bool stop = false;
  };

  explicit Inbox(const AdmissionQueue::Options& options) : queue_(options) {}

  // At arrival.queued_ns. kOverloaded, kDeadline, kUnavailable.
  Result<void> submit(Arrival arrival);

  // As AdmissionQueue's; also kUnavailable.
  Result<void> room_for(const AdmissionQueue::Candidate& candidate, int64_t now_ns) const;
  int64_t retry_after_ns(int64_t now_ns) const;

  // Engine thread. What has come since the last call; the second waits until there is something.
  Delivery take();
  Delivery wait();
  // The same, for so long at most.
  Delivery wait_for(std::chrono::nanoseconds limit);

  // Notifies the engine thread, which then looks for what is asked of it otherwise. Any thread.
  void wake();

  // Engine thread. `update` is called with the queue, under the lock.
  template <typename Update>
  void update_queue(Update&& update) {
    std::lock_guard lock(mutex_);
    update(queue_);
  }
  // One accepted answer has ended, and its reader knows.
  void note_ended();

  struct Queued {
    int requests = 0;
    int64_t tokens = 0;
    int64_t wait_ns = 0;
  };
  Queued queued(int64_t now_ns) const;

  void close();                                                // refuses from now on
  void stop();                                                 // and notifies the engine thread
  bool wait_until_all_ended(std::chrono::milliseconds limit);  // false: they have not

 private:
  Delivery deliver();

  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable all_ended_;
  AdmissionQueue queue_;
  std::vector<Arrival> arrivals_;
  int live_ = 0;  // accepted, not ended
  bool closed_ = false;
  bool stopping_ = false;
  bool is_woken_ = false;
};

}  // namespace pelton::engine
