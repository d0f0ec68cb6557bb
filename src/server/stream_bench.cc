// What a streamed token costs the server, from the engine's step to the kernel: processor time of
// this process, whose clients are another one. The model is the scripted one, so hardly anything
// but the listeners is measured.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "chat/format_of.h"
#include "chat/tiny_tokenizer.h"
#include "engine/engine.h"
#include "engine/modelled_executor.h"
#include "net/http_server.h"
#include "net/test_wire.h"
#include "server/scripted_model.h"
#include "server/server.h"

namespace pelton::server {
namespace {

struct Load {
  in_addr_t address = 0;
  int32_t port = 0;  // 0: leave
  int32_t streams = 0;
  int32_t tokens = 0;   // of each; 0: nothing is asked for, what comes is read until its end
  int32_t pace_us = 0;  // between the beginnings of two
  int32_t rest_us = 0;  // between two looks at what has come
};

// ---- the other process: reads streams as fast as they come, and counts events

int connect_to(const Load& load) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(load.port));
  address.sin_addr.s_addr = load.address;
  CHECK(::connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  return descriptor;
}

int64_t count_of(std::string_view bytes, std::string_view word) {
  int64_t count = 0;
  for (size_t at = bytes.find(word); at != std::string_view::npos; at = bytes.find(word, at + 1)) {
    ++count;
  }
  return count;
}

// Events that have content; a word cut in two by a read is seen too.
int64_t read_streams(const Load& load) {
  constexpr std::string_view kContent = "\"delta\":{\"content\":";
  constexpr std::string_view kDone = "[DONE]";
  struct Stream {
    int descriptor = -1;
    std::string tail;
    int64_t events = 0;
  };
  const std::string body = fmt::format(
      R"({{"stream":true,"max_tokens":{},"messages":[{{"role":"user","content":"go"}}]}})",
      load.tokens);
  const std::string request = fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      body.size(), body);
  const int epoll = ::epoll_create1(0);
  std::vector<Stream> streams(static_cast<size_t>(load.streams));
  for (size_t i = 0; i < streams.size(); ++i) {
    streams[i].descriptor = connect_to(load);
    if (load.tokens > 0) {
      CHECK(::write(streams[i].descriptor, request.data(), request.size()) ==
            static_cast<ssize_t>(request.size()));
    }
    epoll_event event{.events = EPOLLIN, .data = {.u64 = i}};
    CHECK(::epoll_ctl(epoll, EPOLL_CTL_ADD, streams[i].descriptor, &event) == 0);
    if (load.pace_us > 0) ::usleep(static_cast<useconds_t>(load.pace_us));
  }
  std::vector<char> buffer(size_t{1} << 18);
  int64_t events = 0;
  for (size_t open = streams.size(); open > 0;) {
    epoll_event ready[512];
    const int count = ::epoll_wait(epoll, ready, 512, 60'000);
    CHECK(count > 0, "a stream stands still");
    if (load.rest_us > 0) ::usleep(static_cast<useconds_t>(load.rest_us));
    for (int i = 0; i < count; ++i) {
      Stream& stream = streams[ready[i].data.u64];
      const ssize_t bytes = ::read(stream.descriptor, buffer.data(), buffer.size());
      if (bytes == 0 && load.tokens == 0) {
        ::close(stream.descriptor);
        --open;
        continue;
      }
      CHECK(bytes > 0, "a stream broke off");
      const std::string text = stream.tail.append(buffer.data(), static_cast<size_t>(bytes));
      events += count_of(text, kContent);
      const bool done = text.find(kDone) != std::string::npos;
      const size_t kept = std::min(text.size(), kContent.size() - 1);
      stream.tail = text.substr(text.size() - kept);
      if (!done) continue;
      ::close(stream.descriptor);
      --open;
    }
  }
  ::close(epoll);
  return events;
}

// It gives way. Clients are on machines of their own as a rule, where a token that arrives does not
// take the processor from the server's thread that has just sent it.
[[noreturn]] void be_the_client(int orders, int results) {
  const sched_param none{};
  CHECK(::sched_setscheduler(0, SCHED_BATCH, &none) == 0);
  Load load;
  while (::read(orders, &load, sizeof load) == sizeof load && load.port != 0) {
    const int64_t events = read_streams(load);
    if (::write(results, &events, sizeof events) != sizeof events) break;
  }
  std::_Exit(0);
}

class Client {
 public:
  // Before this process has any threads. With a wire it is on the far side.
  explicit Client(const net::TestWire* wire = nullptr)
      : server_address_(wire != nullptr ? net::TestWire::kNearAddress : "127.0.0.1") {
    int orders[2];
    int results[2];
    CHECK(::pipe(orders) == 0 && ::pipe(results) == 0);
    std::fflush(nullptr);
    process_ = ::fork();
    CHECK(process_ >= 0);
    if (process_ == 0) {
      ::close(orders[1]);
      ::close(results[0]);
      if (wire != nullptr) wire->go_to_far_side();
      be_the_client(orders[0], results[1]);
    }
    ::close(orders[0]);
    ::close(results[1]);
    orders_ = orders[1];
    results_ = results[0];
  }
  ~Client() {
    ::close(orders_);
    ::close(results_);
    ::waitpid(process_, nullptr, 0);
  }

  // Where it looks for servers.
  const char* server_address() const { return server_address_; }

  int64_t events_of(Load load) {
    load.address = ::inet_addr(server_address_);
    CHECK(::write(orders_, &load, sizeof load) == sizeof load);
    int64_t events = 0;
    CHECK(::read(results_, &events, sizeof events) == sizeof events, "the client has failed");
    return events;
  }

 private:
  const char* server_address_;
  pid_t process_ = 0;
  int orders_ = -1;
  int results_ = -1;
};

// ---- this process

// A function of its own: of "{}" g++ 12 believes that its strings are not initialised.
Server::Options server_options() {
  Server::Options options;
  options.version = "bench";
  return options;
}

// An engine with its model and its server.
class Rank {
 public:
  struct Options {
    int slots = 1;
    int step_ms = 0;
  };

  Rank(const Options& options, const tokenizer::Tokenizer& tokenizer, const base::Clock& clock,
       base::Log& log)
      : executor_(script(options, tokenizer, clock)),
        engine_({}, executor_, clock, log),
        model_{.id = "tiny",
               .aliases = {},
               .created = 1'700'000'000,
               .context_max = kContext,
               .vocab_size = tokenizer.vocab_size(),
               .tokenizer = tokenizer,
               .chat = chat::format_of(tokenizer).value(),
               .stop_tokens = {},
               .engine = engine_,
               .sampling = {},
               .reasoning_field = "reasoning_content",
               .current_date = "2025-06-28",
               .state = std::make_unique<ModelState>(clock)},
        server_(server_options(), clock, log) {
    server_.services().catalogue.serve({&model_, [](ServedModel*) {}});
  }

  Server& server() { return server_; }

 private:
  static constexpr int kContext = 16'384;

  static engine::ModelledExecutor::Options script(const Options& options,
                                                  const tokenizer::Tokenizer& tokenizer,
                                                  const base::Clock& clock) {
    const std::string script = fmt::format(
        R"({{"context": {}, "slots": {}, "step_ms": {}, "rules": [{{"when": "", "then":
            ["<|channel|>final<|message|>", {{"text": "word", "times": 4000}}]}}]}})",
        kContext, options.slots, options.step_ms);
    return scripted_executor(script, "script.json", tokenizer, clock).value();
  }

  engine::ModelledExecutor executor_;
  engine::Engine engine_;
  ServedModel model_;
  Server server_;
};

// Several ranks behind one listener; each gets its streams one after the other.
class Fixture {
 public:
  struct Options {
    int streams = 1;
    int step_ms = 0;
    int net_threads = 1;
    int ranks = 1;
    const char* address = "127.0.0.1";
  };

  explicit Fixture(const Options& options)
      : streams_each_(static_cast<size_t>(options.streams / options.ranks)),
        http_(
            {.address = options.address, .port = 0, .threads = options.net_threads},
            [this](net::HttpRequest request, std::shared_ptr<net::Exchange> exchange) {
              Rank& rank = *ranks_[next_.fetch_add(1) / streams_each_ % ranks_.size()];
              rank.server().handle(std::move(request), std::move(exchange));
            },
            log_) {
    for (int i = 0; i < options.ranks; ++i) {
      ranks_.push_back(std::make_unique<Rank>(
          Rank::Options{.slots = options.streams / options.ranks, .step_ms = options.step_ms},
          tokenizer_, clock_, log_));
    }
    CHECK(http_.start().ok());
  }
  ~Fixture() { http_.stop(std::chrono::milliseconds(0)); }

  int port() const { return http_.port(); }

  // How many deliveries took at most so long, and how many there were.
  std::pair<double, double> deliveries_within(double seconds) const {
    double within = 0;
    double all = 0;
    for (const std::unique_ptr<Rank>& rank : ranks_) {
      const telemetry::Histogram& delivery =
          rank->server().services().catalogue.only()->state->meter.histograms().delivery_s;
      const auto& bounds = delivery.bounds();
      const telemetry::Histogram::Reading read = delivery.read();
      const auto bound = std::find(bounds.begin(), bounds.end(), seconds) - bounds.begin();
      within += static_cast<double>(read.up_to.at(static_cast<size_t>(bound)));
      all += static_cast<double>(read.count());
    }
    return {within, all};
  }

 private:
  const size_t streams_each_;
  const base::SystemClock clock_{};
  base::Log log_{clock_, {.level = base::LogLevel::kWarning}};
  const tokenizer::Tokenizer tokenizer_ = chat::tiny_tokenizer();
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::atomic<size_t> next_{0};
  net::HttpServer http_;
};

double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// As fast as it goes: events that carry one token each, by processor second.
void BM_StreamedTokens(benchmark::State& state) {
  const auto streams = static_cast<int>(state.range(0));
  const auto tokens = static_cast<int>(state.range(1));
  Client client;
  Fixture fixture({.streams = streams});
  int64_t events = 0;
  int64_t most = 0;
  double spent = 0;
  for (auto _ : state) {
    const double before = cpu_seconds();
    const int64_t came =
        client.events_of({.port = fixture.port(), .streams = streams, .tokens = tokens});
    spent += cpu_seconds() - before;
    events += came;
    // The first three tokens say which message it is.
    most += int64_t{streams} * (tokens - 3);
    CHECK(came <= most, "more events than tokens");
  }
  state.counters["events"] = static_cast<double>(events);
  // Tokens that came in one event with others, because the client was far behind.
  state.counters["merged"] = static_cast<double>(most - events) / static_cast<double>(most);
  state.counters["events/cpu_s"] = static_cast<double>(events) / spent;
}
BENCHMARK(BM_StreamedTokens)
    ->ArgNames({"streams", "tokens"})
    ->Args({1, 4000})
    ->Args({16, 4000})
    ->Args({64, 2000})
    ->Args({500, 400})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// A run that is only to show that it runs is over in a second.
bool only_shows_that_it_runs() {
  return std::getenv("PELTON_FULL") == nullptr;
}

// Of an argument: 0 is loopback, where send() does the receiver's work too; 1 a wire to elsewhere.
std::unique_ptr<net::TestWire> wire_of(benchmark::State& state, size_t argument) {
  if (state.range(argument) == 0) return nullptr;
  // Longer than a step's tokens are being written. Connections are made one after the other.
  const std::chrono::microseconds delay(only_shows_that_it_runs() ? 100 : 4000);
  auto wire = std::make_unique<net::TestWire>(delay);
  if (!wire->ok()) state.SkipWithError("needs CAP_NET_ADMIN and /dev/net/tun");
  return wire;
}

// At people's reading speed: how long a token takes from the engine to the kernel. One rank gives
// all its streams their tokens at the same moment, so that the last waits for the others' writes;
// several do not.
void BM_Delivery(benchmark::State& state) {
  const auto streams = static_cast<int>(state.range(0));
  const int tokens = only_shows_that_it_runs() ? 15 : 300;
  const std::unique_ptr<net::TestWire> wire = wire_of(state, 3);
  if (state.error_occurred()) return;
  Client client(wire.get());
  Fixture fixture({.streams = streams,
                   .step_ms = 50,
                   .net_threads = static_cast<int>(state.range(1)),
                   .ranks = static_cast<int>(state.range(2)),
                   .address = client.server_address()});
  double spent = 0;
  for (auto _ : state) {
    const double before = cpu_seconds();
    client.events_of({.port = fixture.port(),
                      .streams = streams,
                      .tokens = tokens,
                      .pace_us = 100,
                      .rest_us = 5000});
    spent += cpu_seconds() - before;
  }
  const double all = fixture.deliveries_within(1).second;
  state.counters["deliveries"] = all;
  state.counters["cpu_us/delivery"] = spent / all * 1e6;
  for (const auto& [name, seconds] : {std::pair("<0.2ms", .0002), std::pair("<0.5ms", .0005),
                                      std::pair("<1ms", .001), std::pair("<2ms", .002)}) {
    state.counters[name] = fixture.deliveries_within(seconds).first / all;
  }
}
BENCHMARK(BM_Delivery)
    ->ArgNames({"streams", "threads", "ranks", "wire"})
    ->Args({500, 1, 1, 0})
    ->Args({500, 2, 1, 0})
    ->Args({500, 1, 25, 0})
    ->Args({500, 2, 2, 0})
    ->Args({500, 2, 4, 0})
    ->Args({500, 2, 10, 0})
    ->Args({500, 2, 1, 1})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// The floor of BM_Delivery: the same sockets, the same reader, and threads that do nothing but
// write an event of 250 bytes to each, twenty times a second.
class BareWrites {
 public:
  BareWrites(Client& client, int streams) {
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::inet_addr(client.server_address());
    socklen_t size = sizeof address;
    CHECK(::bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0);
    CHECK(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    CHECK(::listen(listener, streams) == 0);
    reading_ = std::thread([&client, streams, port = ntohs(address.sin_port)] {
      client.events_of({.port = port, .streams = streams, .rest_us = 5000});
    });
    for (int i = 0; i < streams; ++i) {
      sockets_.push_back(::accept(listener, nullptr, nullptr));
      const int one = 1;
      ::setsockopt(sockets_.back(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    ::close(listener);
  }
  ~BareWrites() {
    for (const int socket : sockets_) ::close(socket);
    reading_.join();
  }

  // When each write of each round had returned, since its round began.
  std::vector<double> run(int threads, int rounds) {
    std::vector<std::vector<double>> took(static_cast<size_t>(threads));
    std::vector<std::thread> writers;
    const auto start = std::chrono::steady_clock::now();
    for (size_t t = 0; t < took.size(); ++t) {
      writers.emplace_back([&, t] {
        const std::string event(250, 'x');
        for (int round = 1; round <= rounds; ++round) {
          const auto due = start + round * std::chrono::milliseconds(50);
          std::this_thread::sleep_until(due);
          // One thread's sleep may be longer than another's; its oversleeping is nobody's write.
          const auto begun = std::chrono::steady_clock::now();
          for (size_t i = t; i < sockets_.size(); i += took.size()) {
            CHECK(::send(sockets_[i], event.data(), event.size(), MSG_NOSIGNAL) > 0);
            const std::chrono::duration<double> since = std::chrono::steady_clock::now() - begun;
            took[t].push_back(since.count());
          }
        }
      });
    }
    for (std::thread& writer : writers) writer.join();
    std::vector<double> all;
    for (const std::vector<double>& one : took) all.insert(all.end(), one.begin(), one.end());
    return all;
  }

 private:
  std::vector<int> sockets_;
  std::thread reading_;
};

void BM_BareWrites(benchmark::State& state) {
  const std::unique_ptr<net::TestWire> wire = wire_of(state, 2);
  if (state.error_occurred()) return;
  Client client(wire.get());
  BareWrites writes(client, static_cast<int>(state.range(0)));
  std::vector<double> took;
  for (auto _ : state) {
    took = writes.run(static_cast<int>(state.range(1)), only_shows_that_it_runs() ? 15 : 300);
  }
  std::sort(took.begin(), took.end());
  for (const auto& [name, seconds] : {std::pair("<0.2ms", .0002), std::pair("<0.5ms", .0005),
                                      std::pair("<1ms", .001), std::pair("<2ms", .002)}) {
    const auto within = std::lower_bound(took.begin(), took.end(), seconds) - took.begin();
    state.counters[name] = static_cast<double>(within) / static_cast<double>(took.size());
  }
  state.counters["p50_us"] = took[took.size() / 2] * 1e6;
  state.counters["p99_us"] = took[took.size() * 99 / 100] * 1e6;
}
BENCHMARK(BM_BareWrites)
    ->ArgNames({"streams", "threads", "wire"})
    ->Args({500, 1, 0})
    ->Args({500, 2, 0})
    ->Args({500, 2, 1})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace pelton::server
