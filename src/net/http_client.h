// HTTP/1.1 client: calls are started from any thread and run on the client's own threads, where
// their callbacks are called. Connections are kept and used again. Owned by whoever makes the
// calls; it ends every call that still runs when it goes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/http_message.h"
#include "net/tls_trust.h"

namespace pelton::net {

struct HttpCall {
  std::string method = "GET";
  std::string host = "127.0.0.1";  // a name or an address, without brackets
  int port = 80;
  bool tls = false;                       // https
  std::shared_ptr<const TlsTrust> trust;  // null: as the client's options say
  std::string target = "/";               // path and query as they go over the wire
  HttpHeaders headers;  // Host, Content-Length and Connection are the client's business
  std::string body;
  // POST and PATCH too: what they ask is done once there, or does no harm twice. Other methods are
  // idempotent (RFC 9110, 9.2.2).
  bool repeatable = false;

  std::chrono::milliseconds connect_time_max{5'000};  // with TLS: its handshake too
  std::chrono::milliseconds head_time_max{600'000};   // from connected to the response's head
  std::chrono::milliseconds quiet_time_max{600'000};  // between pieces of the body
  // All of it, from the start of the call to the last byte, however steadily they come; 0: no
  // bound.
  std::chrono::milliseconds whole_time_max{0};
  size_t body_bytes_max = size_t{1} << 40;  // of the response
};

// `url` as a call: host, port and target.
Result<HttpCall> make_http_call(std::string method, std::string_view url);

// What a call reports while it runs, on a client thread. on_done comes exactly once, last; after it
// the callbacks are let go.
struct HttpCallEvents {
  // The call's turn has come on its thread; now it connects or sends. Not if it was cancelled
  // before.
  std::function<void()> on_start;
  std::function<void(int status, const HttpHeaders& headers)> on_head;
  std::function<void(std::string_view bytes)> on_body;
  // kUnavailable: no connection; kDeadline; kCancelled; kIo: broke off, or what came is no HTTP.
  std::function<void(Result<void> result)> on_done;
};

class HttpClient {
 public:
  struct Options {
    int threads = 1;
    int idle_connections_max = 256;  // each thread
    std::chrono::milliseconds idle_time_max{30'000};
    std::shared_ptr<const TlsTrust> trust;  // null: the authorities that the system trusts
  };
  using CallId = uint64_t;

  explicit HttpClient(const Options& options);
  ~HttpClient();  // not on a client thread

  // Any thread. If a kept connection turns out to be closed before a byte of the answer has come,
  // the call is made once more on a fresh one if it is repeatable: its server may have seen it.
  // Otherwise that is kIo.
  CallId start(HttpCall call, HttpCallEvents events);
  // Any thread; a call already done is ignored. on_done follows with kCancelled.
  void cancel(CallId id);
  // Any thread. A paused call reads no more, so that its server is held back; what has been read is
  // still delivered. Its quiet_time_max rests.
  void pause(CallId id);
  void resume(CallId id);

 private:
  class Pool;
  std::unique_ptr<Pool> pool_;
};

// One call, waited for; for tests and tools. Makes and joins a thread, so not for many.
Result<HttpResponse> http_fetch(HttpCall call);
// The same over a client that stays.
Result<HttpResponse> http_fetch(HttpClient& client, HttpCall call);

}  // namespace pelton::net
