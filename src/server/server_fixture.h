// For tests: a server with everything behind it, on a free port of this machine, whose model
// answers by a script.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "chat/format_of.h"
#include "chat/tiny_tokenizer.h"
#include "engine/engine.h"
#include "engine/modelled_executor.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/sse.h"
#include "server/scripted_model.h"
#include "server/server.h"
#include "server/test_shape.h"
#include "server/watchdog.h"
#include "store/memory_response_store.h"

namespace pelton::server {

class ServerFixture {
 public:
  struct Options {
    Server::Options server;
    engine::Engine::Options engine;
    bool loaded = true;
    int64_t watchdog_ns = 0;  // 0: nobody watches
    std::function<void()> on_stuck;
    // Not given: that of the shape the tests run over (test_shape.h).
    std::function<tokenizer::Tokenizer()> tokenizer;
    // Changes the executor or the model before they start.
    std::function<void(engine::ModelledExecutor::Options&)> executor = [](auto&) {};
    std::function<void(ServedModel&)> model = [](ServedModel&) {};
  };

  ServerFixture(std::string_view script, Options options)
      : tokenizer_(options.tokenizer ? options.tokenizer() : tokenizer_of_shape()),
        log_(clock_, {.level = base::LogLevel::kNone}),
        executor_(executor_options(script, options)),
        engine_(options.engine, executor_, clock_, log_),
        store_({}, clock_),
        model_{.id = "tiny",
               .aliases = {"org/alias"},
               .created = 1'700'000'000,
               .context_max = 4096,
               .vocab_size = tokenizer_.vocab_size(),
               .tokenizer = tokenizer_,
               .chat = chat::format_of(tokenizer_).value(),
               .stop_tokens = {},
               .engine = engine_,
               .sampling = {},
               .reasoning_field = "reasoning_content",
               .current_date = "2025-06-28",
               .state = std::make_unique<ModelState>(clock_)},
        server_(with_store(options.server), clock_, log_),
        http_(
            {.address = "127.0.0.1",
             .port = 0,
             .takes_body =
                 [this](const net::HttpRequest& head) { return server_.takes_body(head); }},
            [this](net::HttpRequest request, std::shared_ptr<net::Exchange> exchange) {
              server_.handle(std::move(request), std::move(exchange));
            },
            log_) {
    if (options.watchdog_ns > 0) {
      watchdog_ = std::make_unique<Watchdog>(
          Watchdog::Options{.limit_ns = options.watchdog_ns, .on_stuck = options.on_stuck}, engine_,
          clock_, log_);
      model_.watchdog = watchdog_.get();
    }
    options.model(model_);
    if (options.loaded) load();
    const Result<void> started = http_.start();
    EXPECT_TRUE(started.ok());
  }
  ~ServerFixture() { http_.stop(std::chrono::milliseconds(0)); }

  // The fixture owns it, and outlives whoever holds it.
  void load() {
    server_.services().catalogue.serve({&model_, [](ServedModel*) {}});
  }
  Server& server() { return server_; }
  net::HttpServer& http() { return http_; }
  engine::Engine& engine() { return engine_; }
  const ServedModel& model() const { return model_; }
  base::Log& log() { return log_; }

  net::HttpCall call(std::string method, std::string target, std::string body) const {
    net::HttpCall call;
    call.method = std::move(method);
    call.port = http_.port();
    call.target = std::move(target);
    call.body = std::move(body);
    return call;
  }
  net::HttpResponse fetch(net::HttpCall call) {
    Result<net::HttpResponse> response = net::http_fetch(client_, std::move(call));
    EXPECT_TRUE(response.ok()) << (response.ok() ? "" : response.error().message);
    return response.ok() ? std::move(response).value() : net::HttpResponse{.status = 0};
  }
  net::HttpResponse get(std::string target) { return fetch(call("GET", std::move(target), "")); }
  net::HttpResponse post(std::string target, std::string body) {
    return fetch(call("POST", std::move(target), std::move(body)));
  }
  net::HttpClient& client() { return client_; }

 private:
  Server::Options with_store(Server::Options options) {
    if (options.response_store == nullptr) options.response_store = &store_;
    return options;
  }
  engine::ModelledExecutor::Options executor_options(std::string_view script,
                                                     const Options& options) {
    const bool other_spelling = !options.tokenizer && is_qwen3_shape();
    auto made = scripted_executor(other_spelling ? in_qwen3_spelling(script) : std::string(script),
                                  "script.json", tokenizer_, clock_);
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    made->checks = true;
    options.executor(*made);
    return std::move(made).value();
  }

  const base::SystemClock clock_{};
  const tokenizer::Tokenizer tokenizer_;
  base::Log log_;
  engine::ModelledExecutor executor_;
  engine::Engine engine_;
  store::MemoryResponseStore store_;
  std::unique_ptr<Watchdog> watchdog_;
  ServedModel model_;
  Server server_;
  net::HttpServer http_;
  net::HttpClient client_{{}};
};

inline Json parsed(const std::string& text) {
  Result<Json> json = Json::parse(text);
  EXPECT_TRUE(json.ok()) << text;
  return json.ok() ? std::move(json).value() : Json();
}

// The data of a stream's events, "[DONE]" among them.
inline std::vector<std::string> events_of(const std::string& body) {
  std::vector<std::string> events;
  net::SseParser parser({});
  const Result<void> fed =
      parser.feed(body, [&](const net::SseEvent& event) { events.push_back(event.data); });
  EXPECT_TRUE(fed.ok());
  return events;
}

}  // namespace pelton::server
