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
    std::vector<std::shared_ptr<TokenStream::State>> streams;  // one an answer; at least one
    int64_t queued_ns = 0;
  };
  struct Delivery {
    std::vector<Arrival> arrivals;
    bool stop = false;
  };

  // Of what is accepted and never had a seat; an answer counts as a request, the tokens of a prompt
  // count once. One request may always wait, however long.
  struct Options {
    int requests_max = 1024;
    int64_t tokens_max = int64_t{1} << 22;
  };

  explicit Inbox(const Options& options) : options_(options) {}

  // kOverloaded, kUnavailable.
  Result<void> submit(Arrival arrival);

  // Engine thread. What has come since the last call; the second waits until there is something.
  Delivery take();
  Delivery wait();

  // Engine thread. One accepted answer has had a seat for the first time, or will never have one;
  // one has ended, and its reader knows.
  void note_left_queue(int prompt_tokens);
  void note_ended();

  struct Queued {
    int requests = 0;
    int64_t tokens = 0;
  };
  Queued queued() const;

  void close();  // refuses from now on
  void stop();   // and tells the engine thread
  void wait_until_all_ended(std::chrono::milliseconds limit);

 private:
  Delivery deliver();

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable all_ended_;
  std::vector<Arrival> arrivals_;
  int queued_ = 0;             // accepted, never had a seat
  int64_t queued_tokens_ = 0;  // of their prompts
  int live_ = 0;               // accepted, not ended
  bool closed_ = false;
  bool stopping_ = false;
};

}  // namespace pelton::engine
