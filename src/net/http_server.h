// HTTP server (1.1 and 2) on its own few threads. A handler gets each request with an Exchange to
// answer it through, now or later, whole or as a stream. The server is owned by the program's
// entry, which starts and stops it; the handler runs on net threads only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/result.h"
#include "net/allowed_hosts.h"
#include "net/http_message.h"
#include "net/tls_identity.h"

namespace pelton::net {

// A piece of work that other threads ask for again and again: what they would otherwise post each
// time. Ringing costs an entry in a list.
class Notifier {
 public:
  virtual ~Notifier() = default;
  // Any thread: the work runs once more on the net thread, however often it is notified until then.
  virtual void notify() = 0;
};

// What a notifier runs; on the net thread only, where it also goes.
class NotifierTask {
 public:
  virtual ~NotifierTask() = default;
  virtual void run() = 0;
};

// One request's way back. Lives as long as somebody holds it; dropping it unanswered answers 500,
// and dropping it amid a stream cuts the connection, so that the client sees the answer is not
// whole. Every method but post() belongs to the connection's own net thread, where the handler is
// called; from other threads, post() a function there. It may be dropped on any thread, and may
// outlive the server: then every method does nothing. After the answer is complete, or the client
// gone, calls are ignored too. Callbacks given to it are let go when the exchange ends; one that
// holds the exchange itself keeps it alive until then, so an exchange meant to end by being dropped
// is held weakly there.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // The whole answer. At most once, and not after start_stream.
  virtual void send(HttpResponse response) = 0;

  // Begins a streamed answer (chunked); `headers` in addition to what framing needs.
  virtual void start_stream(int status, HttpHeaders headers) = 0;
  // Queues bytes. What is queued is bounded by the caller: see queued_bytes and on_drained.
  virtual void write(std::string_view bytes) = 0;
  virtual void finish() = 0;

  // Instead of an answer: the connection becomes a WebSocket (the request has been checked). Then
  // write() sends one text message, and finish() says goodbye. The connection pings a quiet client
  // and watches for its end by itself; ping() adds one. An exchange that is no connection of its
  // own does nothing of it.
  struct WebSocket {
    size_t message_bytes_max = size_t{32} << 20;
    std::function<void(std::string message)> on_message;
    std::function<void()> on_drain;  // the server is stopping: finish() soon
  };
  virtual void accept_websocket(HttpHeaders headers, WebSocket socket) {}
  // Goodbye with a reason; see WebSocketClose.
  virtual void finish_websocket(int code, std::string reason) {}
  // So that whoever stands between sees something on its way. Nothing where what was written has
  // not all been taken, and where this is no WebSocket.
  virtual void ping() {}

  // Bytes written and not yet taken by the kernel: a slow reader's backlog.
  virtual size_t queued_bytes() const = 0;
  // Called whenever the queue has become empty.
  virtual void on_drained(std::function<void()> drained) = 0;

  // Called once if the client goes away before send() or finish(), also while nothing is written;
  // at once (on the next turn) if it already has. A client that only stops sending (half-close) is
  // not gone: it is still answered.
  virtual void on_closed(std::function<void()> closed) = 0;
  virtual bool closed() const = 0;

  // Any thread: runs `work` on this connection's net thread, also when the client is gone by then.
  // After the server has stopped it is dropped.
  virtual void post(std::function<void()> work) = 0;
  // Not to be notified once the exchange is gone.
  virtual std::shared_ptr<Notifier> make_notifier(std::weak_ptr<NotifierTask> work);
  // The same for work that is its net thread's and nobody's answer: it may be notified long after
  // this exchange is gone, and the notifiers that it signals belong to the same turn. Null for an
  // exchange without such a thread.
  virtual std::shared_ptr<Notifier> make_thread_notifier(std::weak_ptr<NotifierTask> /*work*/) {
    return nullptr;
  }
  // Which thread that is: no other is called so while there is a notifier of it.
  virtual const void* thread_name() const { return nullptr; }
  // Runs `work` on this connection's net thread after a while, unless the exchange is gone by then.
  virtual void post_after(std::chrono::milliseconds delay, std::function<void()> work) = 0;
};

class HttpServer {
 public:
  using Handler = std::function<void(HttpRequest request, std::shared_ptr<Exchange> exchange)>;

  struct Options {
    std::string address = "127.0.0.1";  // or "unix:PATH", where there is no port
    int port = 8000;                    // 0: any free one
    int threads = 1;
    int connections_max = 4096;
    // So many descriptors of those that the process may open stay free for everything else: the
    // admin listener with its connections, gRPC, the model's files, logs and the store. Of very
    // few descriptors half of those that are left at the start. 0: for a listener that is among
    // these.
    int descriptors_spared = 320;
    // Requests for other host names are answered 403: see AllowedHosts::at().
    AllowedHosts hosts;
    std::shared_ptr<const TlsIdentity> tls;  // null: plain HTTP
    // HTTP/2, too: over TLS to who asks for it in the handshake, else to who begins with it.
    bool http2 = false;
    std::chrono::milliseconds handshake_time_max{10'000};
    size_t header_bytes_max = 64 * 1024;
    size_t body_bytes_max = 32 * 1024 * 1024;
    // Of all that is being read at one time: bodies and WebSocket messages, each less its first
    // 64 KiB, so that many large ones do not keep small ones out. Beyond it: 503, or 1013.
    size_t bodies_bytes_max = size_t{256} << 20;
    // Asked when a request's header has come and its body has not, on a net thread. If not, the
    // request is handled without its body and is the connection's last: nobody without a key keeps
    // others' bodies out. Empty: everybody's are taken.
    std::function<bool(const HttpRequest&)> takes_body;
    std::chrono::milliseconds first_byte_time_max{20'000};  // of a new connection
    std::chrono::milliseconds header_time_max{10'000};      // from first byte to end of header
    // A body has the grace and as long as its bytes so far take at the least rate, within the most.
    std::chrono::milliseconds body_grace{20'000};
    int64_t body_rate_min = 16 * 1024;  // bytes a second
    std::chrono::milliseconds body_time_max{300'000};
    std::chrono::milliseconds idle_time_max{75'000};  // keep-alive: between two requests
    // When all places are taken, the connection that has longest been without a whole request's
    // header makes room, if it has been for so long.
    std::chrono::milliseconds patience{1'000};
    // A client that takes no byte of what is queued for it in this time is cut off.
    std::chrono::milliseconds stall_time_max{30'000};
    // One whose machine no longer answers at all; at least two seconds.
    std::chrono::milliseconds lost_time_max{30'000};
    // A WebSocket on which nothing happens for so long is pinged; one that then is silent as long
    // again is closed.
    std::chrono::milliseconds websocket_ping_time{30'000};
    std::chrono::milliseconds websocket_idle_time_max{7'200'000};  // between two messages
  };

  HttpServer(const Options& options, Handler handler, base::Log& log);
  ~HttpServer();

  // Binds and starts the threads. Errors: kAddressInUse, kInvalidArgument.
  Result<void> start();
  int port() const;  // the one bound

  // Stops accepting, lets running exchanges end for at most `grace`, then closes everything. Not to
  // be called on a net thread. The server cannot be started again.
  void stop(std::chrono::milliseconds grace);

  // Connections open now: for metrics and tests.
  int connection_count() const;
  // As many as are taken at once: what was asked for, or what descriptors there are for. Once
  // started.
  int connections_max() const;
  // And so many more that are told that they are too many.
  int connection_refusals_max() const;
  // TLS handshakes that came to nothing.
  int64_t handshakes_failed() const;

 private:
  class Listener;
  std::unique_ptr<Listener> listener_;
};

}  // namespace pelton::net
