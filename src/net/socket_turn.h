// One of the answers that follow one another over a WebSocket connection: an Exchange to whoever
// makes the answer, while the connection stays open behind its end. On the connection's net thread;
// its maker holds it.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "net/http_server.h"

namespace pelton::net {

class SocketTurn : public Exchange {
 public:
  size_t queued_bytes() const final { return connection_->queued_bytes(); }
  void on_drained(std::function<void()> drained) final { drained_ = std::move(drained); }
  void on_closed(std::function<void()> closed) final { closed_ = std::move(closed); }
  bool closed() const final { return over_ || connection_->closed(); }
  void post(std::function<void()> work) final { connection_->post(std::move(work)); }
  std::shared_ptr<Notifier> make_notifier(std::weak_ptr<NotifierTask> work) final {
    return connection_->make_notifier(std::move(work));
  }
  std::shared_ptr<Notifier> make_thread_notifier(std::weak_ptr<NotifierTask> work) final {
    return connection_->make_thread_notifier(std::move(work));
  }
  const void* thread_name() const final { return connection_->thread_name(); }
  void post_after(std::chrono::milliseconds delay, std::function<void()> work) final {
    connection_->post_after(delay, std::move(work));
  }
  void start_stream(int, HttpHeaders) override {}
  void ping() final {
    if (!over_) connection_->ping();
  }
  void finish() override { end(); }

  // From the connection's owner.
  void connection_drained() {
    const std::function<void()> drained = drained_;
    if (drained) drained();
  }
  // The client has left, or wants no more of it: its maker lets go.
  void leave() {
    over_ = true;
    const std::function<void()> closed = std::exchange(closed_, nullptr);
    drained_ = nullptr;
    if (closed) closed();
  }

 protected:
  // `ended`: what the connection does after it, posted, as its maker is still at work.
  SocketTurn(std::shared_ptr<Exchange> connection, std::function<void()> ended)
      : connection_(std::move(connection)), ended_(std::move(ended)) {}
  ~SocketTurn() override { end(); }  // unanswered: the client learns that it can go on

  Exchange& connection() { return *connection_; }
  bool over() const { return over_; }
  void end() {
    if (std::exchange(over_, true)) return;
    closed_ = nullptr;
    drained_ = nullptr;
    connection_->post(ended_);
  }

 private:
  const std::shared_ptr<Exchange> connection_;
  const std::function<void()> ended_;
  std::function<void()> drained_;
  std::function<void()> closed_;
  bool over_ = false;
};

}  // namespace pelton::net
