// Models that sleep: their weights and KV cache have been given back, their names are still served,
// and the first request loads them again. Here wait the calls until that is done; what is loaded
// and let go is the ModelLoader's. Owned by Services. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"

namespace pelton::server {

class ModelSleep {
 public:
  // Called once, on any thread: the model is awake, or why it is not.
  using Done = std::function<void(const Result<void>& outcome)>;

  // What the loader does. Called with a lock of ours held: they call nothing here, nor does `done`.
  struct Loader {
    // The number of the load that makes it, of which ended() follows; none: it is awake.
    std::function<Result<std::optional<uint64_t>>(const std::string& id)> wake = {};
    // `drain_ms`: how long its answers may go on; none: until they have ended.
    std::function<Result<void>(const std::string& id, std::optional<int64_t> drain_ms, Done done)>
        sleep = {};
  };
  // An empty one: nothing is loaded any more.
  void set_loader(Loader loader);

  struct Waiter {
    std::string id;      // of the model
    std::string tenant;  // who waits
    int64_t bytes = 0;   // that it keeps in memory meanwhile
    Done done;
  };
  static constexpr int kWaitingMax = 4096;
  static constexpr int kWaitingPerTenantMax = kWaitingMax / 2;
  static constexpr int64_t kWaitingBytesMax = int64_t{256} << 20;
  // Wakes the model. Gives what cancels the waiting: afterwards `done` is not called. Errors, of
  // which `done` does not hear: kOverloaded (too many wait), and the loader's.
  Result<std::function<void()>> wait(Waiter waiter);

  Result<void> sleep(const std::string& id, std::optional<int64_t> drain_ms, Done done);

  // The loader's: the load of that number is over. All who wait for it hear of it; who waits for a
  // later one of the same model does not.
  void ended(uint64_t load, const Result<void>& outcome);
  // Nothing is woken any more.
  void close();

  int waiting() const;

 private:
  struct Entry {
    uint64_t ticket = 0;
    uint64_t load = 0;
    Waiter waiter;
  };
  // With mutex_ held.
  Result<void> locked_room_for(const Waiter& waiter) const;
  void cancel(uint64_t ticket);

  mutable std::mutex mutex_;
  Loader loader_;
  std::list<Entry> waiting_;
  uint64_t tickets_ = 0;
};

}  // namespace pelton::server
