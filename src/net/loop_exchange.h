// The way back of a call that a foreign library serves (gRPC's): an Exchange on the listener's
// loop. Whole answers become a unary reply or a status, streamed bytes become messages
// (rpc/grpc_frame.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "net/http_server.h"
#include "net/work_loop.h"

namespace pelton::net {

class LoopExchange;

// The call itself, which gRPC's library keeps until it is finished. On the loop's thread.
class LoopResponder {
 public:
  virtual ~LoopResponder() = default;

  virtual void send(HttpResponse response) = 0;
  virtual void write(std::string_view frames) = 0;
  virtual void finish() = 0;
  virtual void abandon() = 0;  // whoever was to answer has gone without
  virtual size_t queued_bytes() const = 0;
};

class LoopExchange final : public Exchange {
 public:
  // The responder calls end() or leave() before it goes.
  LoopExchange(const WorkLoop& loop, LoopResponder& responder)
      : loop_(loop.queue()), responder_(std::make_shared<LoopResponder*>(&responder)) {}
  ~LoopExchange() override;

  void send(HttpResponse response) override;
  void start_stream(int, HttpHeaders) override {}
  void write(std::string_view frames) override;
  void finish() override;
  size_t queued_bytes() const override;
  void on_drained(std::function<void()> drained) override { drained_ = std::move(drained); }
  void on_closed(std::function<void()> closed) override;
  bool closed() const override { return *responder_ == nullptr; }
  void post(std::function<void()> work) override { loop_->post(std::move(work)); }
  void post_after(std::chrono::milliseconds delay, std::function<void()> work) override {
    loop_->post_after(delay, std::move(work));
  }

  // On the loop: whose it is, null from the call's end on. A responder that goes before the
  // exchange, or may, writes null.
  const std::shared_ptr<LoopResponder*>& responder() const { return responder_; }

  // From the responder: everything has been written; the call is over; its client has left.
  void drain();
  void end();
  void leave();

 private:
  const std::shared_ptr<WorkLoop::Queue> loop_;      // an exchange may outlive it
  const std::shared_ptr<LoopResponder*> responder_;  // it holds null when the call is over
  std::function<void()> drained_;
  std::function<void()> closed_;
};

}  // namespace pelton::net
