#include "net/http_client.h"

#include <atomic>
#include <future>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "net/client_call.h"
#include "net/loop.h"
#include "net/url.h"

namespace pelton::net {

Result<HttpCall> make_http_call(std::string method, std::string_view url) {
  TRY_ASSIGN(HttpUrl parsed, parse_http_url(url));
  HttpCall call;
  call.method = std::move(method);
  call.host = std::move(parsed.host);
  call.port = parsed.port;
  call.tls = parsed.tls;
  call.target = std::move(parsed.target);
  return call;
}

class HttpClient::Pool {
 public:
  explicit Pool(const Options& options);
  ~Pool();

  CallId start(HttpCall call, HttpCallEvents events);
  void post(CallId id, void (ClientCall::*what)());

 private:
  // A loop and what only its thread touches.
  struct Worker {
    explicit Worker(const IdleConnections::Options& idle_options)
        : idle(loop.context(), idle_options) {}

    Loop loop;
    IdleConnections idle;
    std::unordered_map<CallId, std::shared_ptr<ClientCall>> calls;
    bool closing = false;
  };

  Worker& worker_of(CallId id) { return *workers_[id % workers_.size()]; }
  Result<void> find_trust(HttpCall& call);

  std::shared_ptr<const TlsTrust> trust_;  // written once, before trust_loaded_ is passed
  Result<void> trust_outcome_;             // as that
  std::once_flag trust_loaded_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::atomic<CallId> last_id_{0};
};

HttpClient::Pool::Pool(const Options& options) : trust_(options.trust) {
  CHECK(options.threads > 0 && options.idle_connections_max >= 0);
  for (int i = 0; i < options.threads; ++i) {
    workers_.push_back(std::make_unique<Worker>(IdleConnections::Options{
        static_cast<size_t>(options.idle_connections_max), options.idle_time_max}));
    workers_.back()->loop.start();
  }
}

HttpClient::Pool::~Pool() {
  for (const std::unique_ptr<Worker>& worker : workers_) {
    CHECK(!worker->loop.on_thread(), "a client cannot be ended by its own thread");
    // Shared: the waiter may be gone before set_value() has returned.
    const auto done = std::make_shared<std::promise<void>>();
    const bool posted = worker->loop.post([&, done] {
      worker->closing = true;
      while (!worker->calls.empty()) worker->calls.begin()->second->cancel();
      worker->idle.clear();
      done->set_value();
    });
    if (posted) done->get_future().wait();
    worker->loop.stop();
  }
}

// The system's authorities are some hundred: read once, and only if they are asked for.
Result<void> HttpClient::Pool::find_trust(HttpCall& call) {
  if (!call.tls || call.trust != nullptr) return {};
  std::call_once(trust_loaded_, [this] {
    if (trust_ != nullptr) return;
    Result<std::shared_ptr<const TlsTrust>> loaded = TlsTrust::load({});
    if (loaded) {
      trust_ = std::move(*loaded);
    } else {
      trust_outcome_ = std::move(loaded).error();
    }
  });
  call.trust = trust_;
  return trust_outcome_;
}

HttpClient::CallId HttpClient::Pool::start(HttpCall call, HttpCallEvents events) {
  const CallId id = last_id_.fetch_add(1) + 1;
  const Result<void> trusted = find_trust(call);
  if (!trusted) {
    if (events.on_done) events.on_done(trusted.error());
    return id;
  }
  Worker& worker = worker_of(id);
  // std::function wants what it holds to be copyable, so what is moved in goes by pointer.
  const auto moved =
      std::make_shared<std::pair<HttpCall, HttpCallEvents>>(std::move(call), std::move(events));
  const bool posted = worker.loop.post([&worker, id, moved] {
    const std::shared_ptr<ClientCall> running = std::make_shared<ClientCall>(
        worker.loop, worker.idle, std::move(moved->first), std::move(moved->second),
        [&worker, id] { worker.calls.erase(id); });
    worker.calls.emplace(id, running);
    if (worker.closing) return running->cancel();
    running->start();
  });
  if (!posted && moved->second.on_done) {
    moved->second.on_done(Error{ErrorCode::kCancelled, "the client has ended", {}});
  }
  return id;
}

void HttpClient::Pool::post(CallId id, void (ClientCall::*what)()) {
  Worker& worker = worker_of(id);
  worker.loop.post([&worker, id, what] {
    const auto found = worker.calls.find(id);
    if (found == worker.calls.end()) return;
    const std::shared_ptr<ClientCall> call = found->second;  // it may leave the map
    ((*call).*what)();
  });
}

HttpClient::HttpClient(const Options& options) : pool_(std::make_unique<Pool>(options)) {}
HttpClient::~HttpClient() = default;

HttpClient::CallId HttpClient::start(HttpCall call, HttpCallEvents events) {
  return pool_->start(std::move(call), std::move(events));
}
void HttpClient::cancel(CallId id) {
  pool_->post(id, &ClientCall::cancel);
}
void HttpClient::pause(CallId id) {
  pool_->post(id, &ClientCall::pause);
}
void HttpClient::resume(CallId id) {
  pool_->post(id, &ClientCall::resume);
}

Result<HttpResponse> http_fetch(HttpClient& client, HttpCall call) {
  HttpResponse response;
  // Shared: we may be gone before set_value() has returned.
  const auto done = std::make_shared<std::promise<Result<void>>>();
  HttpCallEvents events;
  events.on_head = [&](int status, const HttpHeaders& headers) {
    response.status = status;
    response.headers = headers;
  };
  events.on_body = [&](std::string_view bytes) { response.body += bytes; };
  events.on_done = [done](Result<void> result) { done->set_value(std::move(result)); };
  client.start(std::move(call), std::move(events));
  TRY(done->get_future().get());
  return response;
}

Result<HttpResponse> http_fetch(HttpCall call) {
  HttpClient client({});
  return http_fetch(client, std::move(call));
}

}  // namespace pelton::net
