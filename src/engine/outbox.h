// Brings a step's tokens to readers who share a thread: the engine writes one list for all of them
// and wakes that thread once, and there the list is handed out. So the engine, which has the next
// step to see to, touches nothing of hundreds of streams, each of which has left its caches, and
// the reader finds in its own what it is given. May serve several engines; shared by them and its
// maker.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/token_stream.h"

namespace pelton::engine {

class Outbox {
 public:
  // `wake`: called by engine threads when there is something new; it should see to it that
  // deliver() is called soon, on the readers' thread.
  explicit Outbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  // One thread at a time. From here on the streams' readers find with take() what had come, and
  // those that wait for it are called (TokenStream::on_ready), each as often as anything came.
  // Waits, not for long, for what was announced.
  void deliver();

  // For engines only.

  // TokenUpdates will come soon, for many: the readers' thread is woken and waits for them, so that
  // it does not sleep when they are there. An outbox that brings none after all does no harm.
  void announce();

  // What one event brings one stream.
  struct TokenUpdate {
    // The engine holds the stream until its last update, which does so from then on.
    TokenStream::State* to = nullptr;
    std::optional<SampledToken> token;
    int64_t now_ns = 0;
    struct Last {
      std::shared_ptr<TokenStream::State> stream;
      StreamEnd end;
    };
    std::unique_ptr<Last> last;
    std::unique_ptr<std::vector<PromptToken>> prompt;
    std::unique_ptr<PromptFound> found;
  };
  // Takes what `updates` holds, in its order, and leaves it empty, with room for the next ones.
  void send(std::vector<TokenUpdate>& updates);

 private:
  void await();

  const std::function<void()> wake_;
  std::atomic<bool> announced_{false};
  std::atomic<bool> filled_{false};  // `sent_` holds something
  std::mutex mutex_;
  bool awaited_ = false;                 // under mutex_; then nobody has to be woken
  std::vector<TokenUpdate> sent_;        // under mutex_
  std::vector<TokenUpdate> delivering_;  // on the readers' thread
};

}  // namespace pelton::engine
