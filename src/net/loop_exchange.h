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

// The call itself, which gRPC's library keeps until it is finished. On the loop's thread, where it
// also goes; it has one exchange, which may be dropped later, or just then on another thread.
class LoopResponder {
 public:
  LoopResponder() = default;
  virtual ~LoopResponder() { *self_ = nullptr; }
  LoopResponder(const LoopResponder&) = delete;
  LoopResponder& operator=(const LoopResponder&) = delete;

  virtual void send(HttpResponse response) = 0;
  // Its client may learn that it has been taken up. More than once, and send() may follow.
  virtual void take_up() {}
  virtual void write(std::string_view frames) = 0;
  virtual void finish() = 0;
  virtual void abandon() = 0;  // whoever was to answer has gone without
  virtual size_t queued_bytes() const = 0;

 private:
  friend class LoopExchange;
  const std::shared_ptr<LoopResponder*> self_ = std::make_shared<LoopResponder*>(this);
};

class LoopExchange final : public Exchange {
 public:
  // The responder calls end() or leave() when its call is over.
  LoopExchange(const WorkLoop& loop, LoopResponder& responder)
      : loop_(loop.queue()), responder_(responder.self_) {}
  ~LoopExchange() override;

  void send(HttpResponse response) override;
  void start_stream(int, HttpHeaders) override;
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

  // From the responder: everything has been written; the call is over; its client has left.
  void drain();
  void end();
  void leave();

 private:
  const std::shared_ptr<WorkLoop::Queue> loop_;      // an exchange may outlive it
  const std::shared_ptr<LoopResponder*> responder_;  // it holds null when the call is over or gone
  std::function<void()> drained_;
  std::function<void()> closed_;
};

}  // namespace pelton::net
