// How many tokens a second one core of the generator takes in: a server that only writes, one event
// with one token at a time to each of many connections. The counter tokens_per_core_s divides by
// the reading thread's processor time.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <benchmark/benchmark.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/machine.h"
#include "bench/load_generator.h"

namespace pelton::bench {
namespace {

// As a chat server with token counts in each piece sends it: some 300 bytes.
std::string event(int tokens) {
  const std::string data =
      R"({"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1750000000,)"
      R"("model":"gpt-oss-20b","choices":[{"index":0,"delta":{"content":" token"},)"
      R"("logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":512,"completion_tokens":)" +
      std::to_string(tokens) + R"(,"total_tokens":1024}})";
  const std::string line = "data: " + data + "\n\n";
  char size[16];
  std::snprintf(size, sizeof size, "%zx\r\n", line.size());
  return size + line + "\r\n";
}

void write_all(int socket, const std::string& bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t wrote = send(socket, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    CHECK(wrote > 0);
    at += static_cast<size_t>(wrote);
  }
}

// Answers `connections` requests at once with `tokens` events each, in turn and with a pause after
// each turn, then ends.
class Blaster {
 public:
  Blaster(int connections, int tokens, std::chrono::microseconds pause)
      : connections_(connections), tokens_(tokens), pause_(pause) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    CHECK(listen(listener_, 4096) == 0);
    socklen_t size = sizeof address;
    CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~Blaster() {
    thread_.join();
    close(listener_);
  }
  int port() const { return port_; }

 private:
  void run() {
    std::vector<int> sockets;
    for (int i = 0; i < connections_; ++i) {
      const int taken = accept(listener_, nullptr, nullptr);
      CHECK(taken >= 0);
      const int on = 1;
      setsockopt(taken, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      char request[4096];  // bodies are shorter
      CHECK(recv(taken, request, sizeof request, 0) > 0);
      write_all(taken,
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                "Transfer-Encoding: chunked\r\n\r\n");
      sockets.push_back(taken);
    }
    for (int t = 1; t <= tokens_; ++t) {
      const std::string piece = event(t);
      for (const int one : sockets) write_all(one, piece);
      if (pause_.count() > 0) std::this_thread::sleep_for(pause_);
    }
    for (const int one : sockets) {
      write_all(one, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
      close(one);
    }
  }

  const int connections_;
  const int tokens_;
  const std::chrono::microseconds pause_;
  int listener_ = -1;
  int port_ = 0;
  std::thread thread_;
};

void received_tokens(benchmark::State& state) {
  const int connections = static_cast<int>(state.range(0));
  const int tokens = static_cast<int>(state.range(1));
  const base::SystemClock clock;
  double cpu_s = 0;
  int64_t received = 0;
  // Two for each connection: both ends are here.
  if (base::raise_descriptor_limit() < 2 * connections + 100) {
    state.SkipWithError("the system grants too few file descriptors");
    return;
  }
  for (auto _ : state) {
    Blaster server(connections, tokens, std::chrono::microseconds(state.range(2)));
    const auto target =
        make_target({.backend = "openai-chat",
                     .base_url = "http://127.0.0.1:" + std::to_string(server.port()),
                     .endpoint = {},
                     .model = "m",
                     .headers = {}});
    CHECK(target.ok());
    workload::Conversation asked;
    asked.turns.push_back({.prompt = "go", .ids = {}, .messages_json = {}});
    LoadGenerator generator(*target, {}, {}, clock);
    const std::atomic<bool> stop{false};
    const auto count = static_cast<size_t>(connections);
    const LoadOutcome outcome =
        generator.run(std::vector(count, asked), std::vector<double>(count, 0.0), stop);
    for (const report::RequestRecord& record : outcome.records) {
      CHECK(record.ok && record.tokens_told && record.output_tokens == tokens, record.error);
      received += record.output_tokens;
    }
    cpu_s += outcome.watch.busiest_thread_share * outcome.duration_s;
  }
  state.SetItemsProcessed(received);
  if (cpu_s > 0) state.counters["tokens_per_core_s"] = static_cast<double>(received) / cpu_s;
}
// connections, tokens of each, microseconds between turns
void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({1, 2000, 0});
  benchmark->Args({64, 2000, 0});
  benchmark->Args({64, 500, 1000});  // the reader keeps up: each token is a wake-up of its own
  benchmark->Args({1000, 200, 0});
  // Nearly as many as the usual limit of file descriptors lets one process have both ends of.
  if (std::getenv("PELTON_FULL") != nullptr) benchmark->Args({9'500, 20, 0});
}
BENCHMARK(received_tokens)->Apply(shapes)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pelton::bench
