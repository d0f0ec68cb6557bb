// For tests of what is reported of requests: where an access log and spans end up.
#pragma once

#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "net/http_server.h"
#include "server/server_fixture.h"

namespace pelton::server {

// A file that forgets itself; what was written is read back after the writer is gone.
class TemporaryFile {
 public:
  TemporaryFile() : file_(std::tmpfile()) {}
  ~TemporaryFile() { std::fclose(file_); }
  std::FILE* get() const { return file_; }
  std::string text() const {
    std::rewind(file_);
    std::string text;
    for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) {
      text += static_cast<char>(c);
    }
    return text;
  }

 private:
  std::FILE* file_;
};

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

// A collector that keeps what it gets.
class Collector {
 public:
  explicit Collector(int status)
      : log_(clock_, {.level = base::LogLevel::kNone}),
        http_(
            {.address = "127.0.0.1", .port = 0},
            [this, status](net::HttpRequest request, std::shared_ptr<net::Exchange> exchange) {
              {
                const std::lock_guard lock(mutex_);
                paths_.push_back(request.path);
                bodies_.push_back(std::move(request.body));
              }
              exchange->send({.status = status, .headers = {}, .body = "{}"});
            },
            log_) {
    EXPECT_TRUE(http_.start().ok());
  }
  ~Collector() { http_.stop(std::chrono::milliseconds(0)); }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(http_.port()); }
  std::vector<Json> spans() {
    const std::lock_guard lock(mutex_);
    std::vector<Json> spans;
    for (const std::string& body : bodies_) {
      const Json json = parsed(body);
      const Json& scope =
          json.find("resourceSpans")->as_array().at(0).find("scopeSpans")->as_array().at(0);
      for (const Json& span : scope.find("spans")->as_array()) spans.push_back(span);
    }
    return spans;
  }
  std::string all() {
    const std::lock_guard lock(mutex_);
    std::string all;
    for (const std::string& body : bodies_) all += body;
    return all;
  }
  std::vector<std::string> paths() {
    const std::lock_guard lock(mutex_);
    return paths_;
  }

 private:
  const base::SystemClock clock_{};
  base::Log log_;
  std::mutex mutex_;
  std::vector<std::string> bodies_;
  std::vector<std::string> paths_;
  net::HttpServer http_;
};

inline constexpr char kParent[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
inline constexpr char kTraceId[] = "0af7651916cd43dd8448eb211c80319c";

}  // namespace pelton::server
