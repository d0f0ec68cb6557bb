#include "net/connection_exchange.h"

#include <atomic>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/prefetch.h"

namespace pelton::net {
namespace {

void ring_in(Loop& loop, std::shared_ptr<RungWork> work, std::atomic<bool>& rung) {
  try {
    loop.ring(std::move(work));
  } catch (const std::bad_alloc&) {
    rung.store(false);  // it can be rung again
    throw;
  }
}

// With what is counted in front of it.
const char* address_of(const std::weak_ptr<BellWork>& work) {
  return reinterpret_cast<const char*>(work.lock().get()) - 2 * sizeof(void*);
}

// Keeps its connection, not its exchange: work that comes late finds its maker gone, as what was
// posted does.
class ConnectionBell final : public Bell,
                             public RungWork,
                             public std::enable_shared_from_this<ConnectionBell> {
 public:
  ConnectionBell(std::shared_ptr<Connection> connection, std::weak_ptr<BellWork> work)
      : loop_(connection->loop()),
        connection_(std::move(connection)),
        work_(std::move(work)),
        work_address_(address_of(work_)) {}

  void ring() override {
    if (!rung_.exchange(true)) ring_in(loop_, shared_from_this(), rung_);
  }
  void run() override {
    rung_.store(false);
    const std::shared_ptr<BellWork> work =
        foreseen_ != nullptr ? std::exchange(foreseen_, nullptr) : work_.lock();
    connection_->begin_work([&work] {
      if (work != nullptr) work->on_ring();
    });
  }
  void leave() override { connection_->end_work(); }
  // Its own memory is there when this is called first. Who is foreseen is kept until its turn,
  // which is some microseconds away, rather than looked for each time.
  void foresee(int others) override {
    if (others > BellWork::kFarthest) {
      connection_->foresee();
      base::prefetch(work_address_, BellWork::kFirstBytes);
      return;
    }
    if (foreseen_ == nullptr) foreseen_ = work_.lock();
    if (foreseen_ != nullptr) foreseen_->foresee(others);
  }

 private:
  Loop& loop_;  // the connection keeps it
  const std::shared_ptr<Connection> connection_;
  const std::weak_ptr<BellWork> work_;
  const char* const work_address_;  // it may be gone
  std::atomic<bool> rung_{false};
  std::shared_ptr<BellWork> foreseen_;  // on the loop's thread, within one turn
};

class LoopBell final : public Bell, public RungWork, public std::enable_shared_from_this<LoopBell> {
 public:
  LoopBell(std::shared_ptr<Loop> loop, std::weak_ptr<BellWork> work)
      : loop_(std::move(loop)), work_(std::move(work)) {}

  void ring() override {
    if (!rung_.exchange(true)) ring_in(*loop_, shared_from_this(), rung_);
  }
  void run() override {
    rung_.store(false);
    if (const std::shared_ptr<BellWork> work = work_.lock()) work->on_ring();
  }
  void foresee(int) override {}

 private:
  const std::shared_ptr<Loop> loop_;
  const std::weak_ptr<BellWork> work_;
  std::atomic<bool> rung_{false};
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
    streaming_ = true;
    connection_->accept_websocket(id_, headers, std::move(socket));
  }
  void finish_websocket(int code, std::string reason) override {
    CHECK(streaming_ && !answered_, "finish() ends a stream, once");
    answered_ = true;
    connection_->finish_websocket(id_, {code, std::move(reason)});
  }

  size_t queued_bytes() const override {
    return connection_->is_over(id_) ? 0 : connection_->queued_bytes();
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
  std::shared_ptr<Bell> make_bell(std::weak_ptr<BellWork> work) override {
    return std::make_shared<ConnectionBell>(connection_, std::move(work));
  }
  std::shared_ptr<Bell> make_thread_bell(std::weak_ptr<BellWork> work) override {
    return std::make_shared<LoopBell>(connection_->shared_loop(), std::move(work));
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
