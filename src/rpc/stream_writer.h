// Writes the messages of one gRPC stream, one at a time, and ends it. A client that takes nothing
// of what is written to it is cut off. Owned by its call, on the listener's loop.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>

#include <grpcpp/support/status.h>

#include "net/work_loop.h"

namespace pelton::rpc {

class StreamWriter {
 public:
  // What gRPC's library does for the call.
  class Stream {
   public:
    virtual ~Stream() = default;
    // `message` stays as it is until written().
    virtual void start_write(const std::string& message) = 0;
    virtual void finish_stream(const grpc::Status& status) = 0;
    virtual void cancel_stream() = 0;
  };

  // Both outlive it.
  StreamWriter(net::WorkLoop& loop, Stream& stream, std::chrono::milliseconds stall_time_max)
      : loop_(loop), stream_(stream), stall_time_max_(stall_time_max) {}

  void push(std::string message);
  // Behind what has been pushed.
  void end(const grpc::Status& status);
  // What waits is dropped; also while a write runs: gRPC sees to the order. Once.
  void end_now(const grpc::Status& status);
  // What start_write() was given has been taken.
  void written();

  bool ending() const { return end_asked_ || ended_; }
  bool ended() const { return ended_; }  // nothing is written any more
  bool idle() const { return queue_.empty(); }
  size_t queued_bytes() const { return queued_bytes_; }

 private:
  void go_on();
  void begin_watch();
  void watch(std::chrono::milliseconds after);

  net::WorkLoop& loop_;
  Stream& stream_;
  const std::chrono::milliseconds stall_time_max_;
  const std::shared_ptr<char> life_ = std::make_shared<char>();
  std::deque<std::string> queue_;  // messages, the first of them being written
  size_t queued_bytes_ = 0;
  grpc::Status status_;  // that the stream ends with
  bool end_asked_ = false;
  bool ended_ = false;
  bool write_runs_ = false;
  bool watched_ = false;
  std::chrono::steady_clock::time_point write_began_;
};

}  // namespace pelton::rpc
