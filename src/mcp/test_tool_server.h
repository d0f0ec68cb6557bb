// A server of the Model Context Protocol as tests want it: it says what it was called with, as a
// JSON text or as events, or something that is no answer. Tests only.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "net/http_server.h"
#include "net/sse.h"

namespace pelton::mcp {

class TestToolServer {
 public:
  enum class As {
    kJson,
    kEvents,
    kNoJson,
    kNothing,
    kOtherId,
    kStatus,
    kRefusal,
    kTooLarge,
    kManyQuestions,
    kSilence,
    kOtherRevision,
    kToolError,
  };
  // What a tool prints; by its name and its arguments.
  using Tool = std::function<std::string(const std::string& name, const Json& arguments)>;

  TestToolServer()
      : log_(clock_, {.level = base::LogLevel::kNone}),
        http_(
            {.address = "127.0.0.1", .port = 0},
            [this](net::HttpRequest request, std::shared_ptr<net::Exchange> exchange) {
              handle(request, exchange);
            },
            log_) {
    if (!http_.start().ok()) std::abort();
  }
  ~TestToolServer() {
    http_.stop(std::chrono::milliseconds(0));
    kept_.clear();
  }

  std::string url() const { return fmt::format("http://127.0.0.1:{}/mcp", http_.port()); }
  void answer_as(As as) { as_ = as; }
  void print(Tool tool) {
    std::lock_guard lock(mutex_);
    tool_ = std::move(tool);
  }

  int count(const std::string& method) {
    std::lock_guard lock(mutex_);
    return counts_[method];
  }
  int pongs() const { return pongs_; }
  int refused() const { return refused_; }
  int ended() const { return ended_; }
  int too_early() const { return too_early_; }  // calls before the client has said that it is ready
  int without_session() const { return without_session_; }
  static bool soon(const std::function<bool()>& condition) {
    for (int i = 0; i < 5000 && !condition(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return condition();
  }

 private:
  void handle(const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange) {
    if (request.method == "DELETE") {
      ++ended_;
      return exchange->send({.status = 200});
    }
    const Result<Json> message = Json::parse(request.body);
    if (!message.ok()) return exchange->send({.status = 400});
    const std::string method = message->string("method").value_or("");
    {
      std::lock_guard lock(mutex_);
      ++counts_[method];
    }
    if (method != "initialize" && request.headers.get("mcp-session-id") != "s-1") {
      ++without_session_;
    }
    if (method == "notifications/initialized") initialized_ = true;
    if (method == "tools/call" && !initialized_) ++too_early_;
    if (method.empty()) {
      message->find("result") != nullptr ? ++pongs_ : ++refused_;
      return exchange->send({.status = 202});
    }
    if (message->find("id") == nullptr) return exchange->send({.status = 202});
    answer(method, *message, exchange);
  }

  void answer(const std::string& method, const Json& message,
              const std::shared_ptr<net::Exchange>& exchange) {
    const int64_t id = message.integer("id").value_or(0);
    const bool is_call = method == "tools/call";
    const As as = is_call || as_ == As::kOtherRevision ? as_.load() : As::kJson;
    const auto say = [&](const std::string& member, int64_t to) {
      net::HttpResponse response{.status = 200};
      response.headers.add("Content-Type", "application/json");
      if (method == "initialize") response.headers.add("Mcp-Session-Id", "s-1");
      response.body = fmt::format(R"({{"jsonrpc":"2.0","id":{},{}}})", to, member);
      exchange->send(std::move(response));
    };
    switch (as) {
      case As::kNoJson:
        return exchange->send({.status = 200, .body = "hello"});
      case As::kNothing:
        return exchange->send({.status = 200});
      case As::kStatus:
        return exchange->send({.status = 500, .body = "broken"});
      case As::kSilence: {
        std::lock_guard lock(mutex_);
        kept_.push_back(exchange);
        return;
      }
      case As::kRefusal:
        return say(R"("error":{"code":-1,"message":"no such thing"})", id);
      default:
        break;
    }
    const std::string result = R"("result":)" + result_of(method, message, as);
    if (as != As::kEvents && as != As::kManyQuestions)
      return say(result, as == As::kOtherId ? id + 1 : id);
    net::HttpHeaders headers;
    headers.add("Content-Type", "text/event-stream; charset=utf-8");
    exchange->start_stream(200, std::move(headers));
    std::string events;
    net::append_sse_data(events, R"({"jsonrpc":"2.0","method":"notifications/progress"})");
    net::append_sse_data(events, R"({"jsonrpc":"2.0","id":"p","method":"ping"})");
    net::append_sse_data(events, R"({"jsonrpc":"2.0","id":"s","method":"sampling/createMessage"})");
    for (int i = 0; as == As::kManyQuestions && i < 100; ++i) {
      net::append_sse_data(events, R"({"jsonrpc":"2.0","id":"q","method":"ping"})");
    }
    net::append_sse_data(events, fmt::format(R"({{"jsonrpc":"2.0","id":{},{}}})", id, result));
    exchange->write(events);
    exchange->finish();
  }

  std::string result_of(const std::string& method, const Json& message, As as) {
    const Json* const params = message.find("params");
    if (method == "initialize") {
      return fmt::format(R"({{"protocolVersion":"{}","capabilities":{{}},"serverInfo":{{}}}})",
                         as == As::kOtherRevision ? "1999-01-01" : "2025-06-18");
    }
    if (method == "tools/list") {
      return params->string("cursor")
                 ? R"({"tools":[{"name":"find","inputSchema":{}},{"name":"python","inputSchema":{}}]})"
                 : R"({"tools":[{"name":"search","inputSchema":{}},{"name":"open","inputSchema":{}}],"nextCursor":"2"})";
    }
    const std::string name = params->string("name").value_or("");
    const Json* const arguments = params->find("arguments");
    std::string text = name + " " + arguments->dump();
    {
      std::lock_guard lock(mutex_);
      if (tool_) text = tool_(name, *arguments);
    }
    if (as == As::kTooLarge) text.assign(100'000, 'x');
    Json part;
    part.set("type", Json("text")).set("text", Json(std::move(text)));
    Json::Array parts;
    parts.push_back(std::move(part));
    Json result;
    result.set("content", Json(std::move(parts))).set("isError", Json(as == As::kToolError));
    return result.dump();
  }

  const base::SystemClock clock_{};
  base::Log log_;
  std::atomic<As> as_ = As::kJson;
  std::atomic<int> pongs_ = 0;
  std::atomic<int> refused_ = 0;
  std::atomic<int> ended_ = 0;
  std::atomic<int> without_session_ = 0;
  std::atomic<int> too_early_ = 0;
  std::atomic<bool> initialized_ = false;
  std::mutex mutex_;
  Tool tool_;
  std::map<std::string, int> counts_;
  std::vector<std::shared_ptr<net::Exchange>> kept_;
  net::HttpServer http_;
};

}  // namespace pelton::mcp
