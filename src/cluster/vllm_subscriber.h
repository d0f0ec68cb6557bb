// Reads what one vLLM worker publishes of its prefix cache: a ZMQ SUB socket, and where it has one
// the socket that says again what was missed. Batches are numbered: a gap is asked for again; where
// nobody says it, the numbers begin anew or the connection broke (who answers next may have started
// since), all that was known is void. Owned by whoever listens;
// a thread of its own, on which it calls back.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/result.h"
#include "cluster/vllm_events.h"

namespace pelton::cluster {

// Where a numbered batch stands in the order of those that have come. Pure.
class EventSequence {
 public:
  enum class Place {
    kNext,
    kOld,      // it has come before
    kGap,      // some before it have not come
    kRestart,  // its publisher has begun anew
  };
  // `publisher`: empty where it is not said.
  Place place_of(int64_t number, const std::string& publisher) const;
  void note(int64_t number, const std::string& publisher) {
    next_ = number + 1;
    publisher_ = publisher;
  }
  int64_t next() const { return next_; }
  void restart() { next_ = 0; }

 private:
  // So far back a number of the same publisher means that it has begun anew, and not that a batch
  // came twice. Who does not say who he is publishes in order: any number below the next is a new
  // beginning.
  static constexpr int64_t kLateMax = 64;

  int64_t next_ = 0;
  std::string publisher_;
};

class VllmSubscriber {
 public:
  enum class Reset {
    kGap,         // batches are missing, and nobody says them again
    kRestart,     // its publisher has begun anew
    kLinkLost,    // who answers next may have begun anew
    kUnreadable,  // a batch that is not understood
  };
  static constexpr size_t kResets = 4;

  struct Options {
    std::string host;
    int port = 0;
    int replay_port = 0;  // 0: there is none
    // One batch. With a reset what was said before is void.
    struct News {
      std::optional<Reset> reset;
      std::vector<VllmEvent> events;
    };
    std::function<void(News news)> on_news;
  };

  explicit VllmSubscriber(Options options);
  ~VllmSubscriber();
  VllmSubscriber(const VllmSubscriber&) = delete;
  VllmSubscriber& operator=(const VllmSubscriber&) = delete;

 private:
  struct Batch {
    int64_t number = 0;
    std::string publisher;
    std::string payload;
  };

  void run();
  // Until it is to end, or there is no socket to be had.
  void listen();
  // All that has come.
  void drain(void* socket);
  void take(Batch batch);
  void apply(const Batch& batch, std::optional<Reset> reset);
  // What it missed before the batch of this number, as far as it is said again, each as it comes.
  // `reset`: the first of them voids what there was. Gives back what is still to be done of that.
  std::optional<Reset> replay(int64_t until, std::optional<Reset> reset);

  const Options options_;
  void* const context_;
  EventSequence sequence_;  // the thread's
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

// "gap", "restart", "link_lost", "unreadable"
std::string_view name_of(VllmSubscriber::Reset reset);

}  // namespace pelton::cluster
