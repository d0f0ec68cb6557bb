// A worker that computes nothing, for measuring what a gateway adds (`pelton bench gateway`): it
// speaks a fleet's frames (cluster/frame.h) over the fleet's key as `pelton serve --fleet-port`
// does, and answers the same chats over plain HTTP, so that both ways can be compared. An answer
// has as many tokens as its request's `max_tokens` says; the text of each is its number and this
// sink's: a reader sees whether one is lost or doubled, and who said it. Owned by the verb; answers
// are written on the sink's own net threads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "net/http_server.h"

namespace pelton::bench {

class FrameSink {
 public:
  struct Options {
    int number = 0;                 // of this sink: a part of its name, and of what it says
    std::vector<std::string> keys;  // of connections, derived of the fleet's; empty: plain HTTP
    uint64_t block_seed = 0;        // of the fleet's block names
    int direct_port = 0;            // 0: any free one
    std::string model = "bench";    // that it serves
    std::chrono::milliseconds token_interval{0};  // between two tokens of a stream
  };

  explicit FrameSink(base::Log& log) : log_(log) {}
  ~FrameSink() { close(); }

  Result<void> open(Options options);
  // As a process that is killed: every connection ends, amid whatever it says.
  void close();

  int fleet_port() const { return fleet_->port(); }
  int direct_port() const { return direct_->port(); }
  // A gateway has seen what it can.
  bool is_seen() const { return is_seen_; }
  // Streams that are being said to gateways.
  int64_t open_streams() const { return open_streams_; }

 private:
  class Answer;
  class Watch;

  void handle_fleet(const net::HttpRequest& request,
                    const std::shared_ptr<net::Exchange>& exchange);
  void handle_direct(const net::HttpRequest& request,
                     const std::shared_ptr<net::Exchange>& exchange);

  base::Log& log_;
  Options options_;
  std::string incarnation_;
  std::atomic<int64_t> open_streams_{0};
  std::atomic<bool> is_seen_{false};
  std::atomic<int64_t> answers_{0};
  std::atomic<int64_t> dispatch_{0};  // the highest seen of its one gateway
  std::unique_ptr<net::HttpServer> fleet_;
  std::unique_ptr<net::HttpServer> direct_;
};

}  // namespace pelton::bench
