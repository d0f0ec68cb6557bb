#include "net/connection_exchange.h"

#include <atomic>
#include <new>
#include <utility>

#include "base/check.h"

namespace pelton::net {
namespace {

void notify_in(Loop& loop, std::shared_ptr<NotifiedTask> work, std::atomic<bool>& notified) {
  try {
    loop.notify(std::move(work));
  } catch (const std::bad_alloc&) {
    notified.store(false);  // it can be notified again
    throw;
  }
}

// Keeps its connection, not its exchange: work that comes late finds its maker gone, as what was
// posted does.
class ConnectionNotifier final : public Notifier,
                                 public NotifiedTask,
                                 public std::enable_shared_from_this<ConnectionNotifier> {
 public:
  ConnectionNotifier(std::shared_ptr<Connection> connection, std::weak_ptr<NotifierTask> work)
      : loop_(connection->loop()), connection_(std::move(connection)), work_(std::move(work)) {}

  void notify() override {
    if (!notified_.exchange(true)) notify_in(loop_, shared_from_this(), notified_);
  }
  void run() override {
    notified_.store(false);
    connection_->begin_work([this] {
      if (const std::shared_ptr<NotifierTask> work = work_.lock()) work->run();
    });
  }
  void leave() override { connection_->end_work(); }

 private:
  Loop& loop_;  // the connection keeps it
  const std::shared_ptr<Connection> connection_;
  const std::weak_ptr<NotifierTask> work_;
  std::atomic<bool> notified_{false};
};

class LoopNotifier final : public Notifier,
                           public NotifiedTask,
                           public std::enable_shared_from_this<LoopNotifier> {
 public:
  LoopNotifier(std::shared_ptr<Loop> loop, std::weak_ptr<NotifierTask> work)
      : loop_(std::move(loop)), work_(std::move(work)) {}

  void notify() override {
    if (!notified_.exchange(true)) notify_in(*loop_, shared_from_this(), notified_);
  }
  void run() override {
    notified_.store(false);
    if (const std::shared_ptr<NotifierTask> work = work_.lock()) work->run();
  }

 private:
  const std::shared_ptr<Loop> loop_;
  const std::weak_ptr<NotifierTask> work_;
  std::atomic<bool> notified_{false};
};

class ConnectionExchange final : public Exchange {
 public:
  ConnectionExchange(std::shared_ptr<Connection> connection, uint64_t id)
      : connection_(std::move(connection)), id_(id) {}

  ~ConnectionExchange() override {
    if (answered_) return;
    // Posted even from the net thread: the last holder may be one of the connection's own
    // callbacks.
    Loop& loop = connection_->loop();
    loop.post(
        [connection = std::move(connection_), id = id_] { connection->exchange_dropped(id); });
  }

  void send(HttpResponse response) override {
    CHECK(!answered_ && !streaming_, "an exchange is answered once");
    answered_ = true;
    connection_->send(id_, std::move(response));
  }
  void start_stream(int status, HttpHeaders headers) override {
    CHECK(!answered_ && !streaming_, "an exchange is answered once");
    streaming_ = true;
    connection_->start_stream(id_, status, headers);
  }
  void write(std::string_view bytes) override {
    CHECK(streaming_ && !answered_, "write() belongs between start_stream() and finish()");
    connection_->write(id_, bytes);
  }
  void finish() override {
    CHECK(streaming_ && !answered_, "finish() ends a stream, once");
    answered_ = true;
    connection_->finish(id_);
  }

  void accept_websocket(HttpHeaders headers, WebSocket socket) override {
    CHECK(!answered_ && !streaming_, "an exchange is answered once");
    if (connection_->speaks_http2()) return;
    streaming_ = true;
    connection_->accept_websocket(id_, headers, std::move(socket));
  }
  void finish_websocket(int code, std::string reason) override {
    CHECK(streaming_ && !answered_, "finish() ends a stream, once");
    answered_ = true;
    connection_->finish_websocket(id_, {code, std::move(reason)});
  }
  void ping() override { connection_->ping(id_); }

  size_t queued_bytes() const override {
    return connection_->is_over(id_) ? 0 : connection_->queued_bytes(id_);
  }
  void on_drained(std::function<void()> drained) override {
    connection_->on_drained(id_, std::move(drained));
  }
  void on_closed(std::function<void()> closed) override {
    if (!answered_) connection_->on_closed(id_, std::move(closed));
  }
  bool closed() const override { return connection_->is_over(id_); }

  // What the work has written leaves before the next piece of work begins: of many streams that
  // have something to say at once, none waits until all have said it.
  void post(std::function<void()> work) override {
    connection_->loop().post([connection = connection_, work = std::move(work)]() mutable {
      connection->run(std::exchange(work, nullptr));
    });
  }
  std::shared_ptr<Notifier> make_notifier(std::weak_ptr<NotifierTask> work) override {
    return std::make_shared<ConnectionNotifier>(connection_, std::move(work));
  }
  std::shared_ptr<Notifier> make_thread_notifier(std::weak_ptr<NotifierTask> work) override {
    return std::make_shared<LoopNotifier>(connection_->shared_loop(), std::move(work));
  }
  const void* thread_name() const override { return connection_->shared_loop().get(); }
  void post_after(std::chrono::milliseconds delay, std::function<void()> work) override {
    connection_->post_after(id_, delay, std::move(work));
  }

 private:
  std::shared_ptr<Connection> connection_;
  const uint64_t id_;
  bool streaming_ = false;
  bool answered_ = false;
};

}  // namespace

std::shared_ptr<Exchange> make_exchange(std::shared_ptr<Connection> connection, uint64_t id) {
  return std::make_shared<ConnectionExchange>(std::move(connection), id);
}

}  // namespace pelton::net
