// Requests and SSE events per second over loopback, one net thread on each side.
#include <atomic>
#include <future>
#include <memory>
#include <string>

#include <benchmark/benchmark.h>

#include "base/check.h"
#include "base/clock.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/sse.h"

namespace pelton::net {
namespace {

constexpr int kEvents = 2000;  // of one stream
const std::string kEvent =
    R"({"id":"chatcmpl-0123456789","object":"chat.completion.chunk","created":1750000000,)"
    R"("model":"gpt-oss-20b","choices":[{"index":0,"delta":{"content":" token"}}]})";

// One event in each turn of the loop, as tokens come.
void write_events(const std::shared_ptr<Exchange>& exchange, int left) {
  if (left == 0) return exchange->finish();
  std::string event;
  append_sse_data(event, kEvent);
  exchange->write(event);
  exchange->post([exchange, left] { write_events(exchange, left - 1); });
}

struct Loopback {
  Loopback()
      : log(clock, {.level = base::LogLevel::kNone}),
        server(
            {.port = 0},
            [](HttpRequest request, std::shared_ptr<Exchange> exchange) {
              if (request.path == "/sse") {
                exchange->start_stream(200, {});
                return write_events(exchange, kEvents);
              }
              exchange->send({.body = std::move(request.body)});
            },
            log),
        client({}) {
    CHECK(server.start().ok());
  }

  base::SystemClock clock;
  base::Log log;
  HttpServer server;
  HttpClient client;
};

HttpCall make_call(const HttpServer& server, const char* method, const char* target) {
  HttpCall call;
  call.method = method;
  call.port = server.port();
  call.target = target;
  return call;
}

void sse_events(benchmark::State& state) {
  Loopback loopback;
  const int streams = static_cast<int>(state.range(0));
  for (auto _ : state) {
    std::atomic<int> left{streams};
    std::promise<void> done;
    for (int i = 0; i < streams; ++i) {
      HttpCallEvents events;
      events.on_done = [&](Result<void> result) {
        CHECK(result.ok());
        if (left.fetch_sub(1) == 1) done.set_value();
      };
      loopback.client.start(make_call(loopback.server, "GET", "/sse"), std::move(events));
    }
    done.get_future().wait();
  }
  state.SetItemsProcessed(state.iterations() * streams * kEvents);
}
BENCHMARK(sse_events)->Arg(1)->Arg(32)->UseRealTime()->Unit(benchmark::kMillisecond);

void post_requests(benchmark::State& state) {
  Loopback loopback;
  for (auto _ : state) {
    HttpCall call = make_call(loopback.server, "POST", "/echo");
    call.body.assign(static_cast<size_t>(state.range(0)), 'b');
    CHECK(http_fetch(loopback.client, std::move(call)).ok());
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(post_requests)->Arg(1000)->Arg(1'000'000)->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace pelton::net
