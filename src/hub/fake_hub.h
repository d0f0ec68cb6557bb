// A hub for tests: real sockets on the loopback, and every way to misbehave. Owned by a test; its
// threads call `answer` and end with it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"

namespace pelton::hub {

struct FakeRequest {
  std::string method;
  std::string target;
  std::string authorization;
  std::string range;  // "0-99"; empty: none
};

struct FakeAnswer {
  int status = 200;
  std::map<std::string, std::string> headers;
  std::string body;
  int64_t cut_after = -1;              // bytes of the body, then the connection is dropped
  std::chrono::milliseconds pause{0};  // before the body, and again in its middle
};

class FakeServer {
 public:
  using Answer = std::function<FakeAnswer(const FakeRequest&)>;

  explicit FakeServer(Answer answer) : answer_(std::move(answer)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    CHECK(::listen(listener_, 64) == 0);
    socklen_t size = sizeof address;
    CHECK(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    url_ = fmt::format("http://127.0.0.1:{}", ntohs(address.sin_port));
    acceptor_ = std::thread([this] { accept_all(); });
  }

  ~FakeServer() {
    stopping_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    ::close(listener_);
    {
      std::lock_guard lock(mutex_);
      for (const int connection : connections_) ::shutdown(connection, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
  }

  const std::string& url() const { return url_; }
  std::vector<FakeRequest> requests() const {
    std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void accept_all() {
    while (!stopping_) {
      const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) continue;
      std::lock_guard lock(mutex_);
      connections_.push_back(connection);
      threads_.emplace_back([this, connection] { serve(connection); });
    }
  }

  void serve(int connection) {
    std::string buffer;
    FakeRequest request;
    while (!stopping_ && read_request(connection, buffer, request)) {
      {
        std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      if (!send_answer(connection, request, answer_(request))) break;
    }
    ::shutdown(connection, SHUT_RDWR);
  }

  static bool read_request(int connection, std::string& buffer, FakeRequest& request) {
    size_t end;
    while ((end = buffer.find("\r\n\r\n")) == std::string::npos) {
      char bytes[4096];
      const ssize_t got = ::recv(connection, bytes, sizeof bytes, 0);
      if (got <= 0) return false;
      buffer.append(bytes, static_cast<size_t>(got));
    }
    const std::string head = buffer.substr(0, end + 2);
    buffer.erase(0, end + 4);
    const size_t space = head.find(' ');
    request = {};
    request.method = head.substr(0, space);
    request.target = head.substr(space + 1, head.find(' ', space + 1) - space - 1);
    request.authorization = field(head, "\r\nAuthorization: ");
    request.range = field(head, "\r\nRange: bytes=");
    return true;
  }

  static std::string field(const std::string& head, const std::string& name) {
    const size_t begin = head.find(name);
    if (begin == std::string::npos) return "";
    const size_t text = begin + name.size();
    return head.substr(text, head.find("\r\n", text) - text);
  }

  bool send_answer(int connection, const FakeRequest& request, FakeAnswer answer) {
    std::string head = fmt::format("HTTP/1.1 {} Status\r\n", answer.status);
    answer.headers.try_emplace("Content-Length", std::to_string(answer.body.size()));
    for (const auto& [name, value] : answer.headers) {
      head += fmt::format("{}: {}\r\n", name, value);
    }
    if (!send_all(connection, head + "\r\n")) return false;
    if (request.method == "HEAD") return true;
    const bool cut = answer.cut_after >= 0;
    if (cut) answer.body.resize(std::min(answer.body.size(), size_t(answer.cut_after)));
    const size_t half = answer.pause.count() > 0 ? answer.body.size() / 2 : 0;
    std::this_thread::sleep_for(answer.pause);
    if (!send_all(connection, answer.body.substr(0, half))) return false;
    std::this_thread::sleep_for(answer.pause);
    return send_all(connection, answer.body.substr(half)) && !cut;
  }

  static bool send_all(int connection, const std::string& bytes) {
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t put =
          ::send(connection, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (put <= 0) return false;
      done += static_cast<size_t>(put);
    }
    return true;
  }

  const Answer answer_;
  int listener_ = -1;
  std::string url_;
  std::atomic<bool> stopping_{false};
  std::thread acceptor_;
  mutable std::mutex mutex_;
  std::vector<int> connections_;
  std::vector<std::thread> threads_;
  std::vector<FakeRequest> requests_;
};

// The part of a file that a request asks for, as a good server sends it.
inline FakeAnswer file_answer(const FakeRequest& request, const std::string& content) {
  FakeAnswer answer{.headers = {{"Accept-Ranges", "bytes"}}, .body = content};
  if (request.range.empty()) return answer;
  const size_t dash = request.range.find('-');
  const size_t first = std::stoull(request.range.substr(0, dash));
  const size_t last = std::min(std::stoull(request.range.substr(dash + 1)), content.size() - 1ull);
  if (first >= content.size()) return {.status = 416};
  answer.status = 206;
  answer.body = content.substr(first, last - first + 1);
  answer.headers["Content-Range"] = fmt::format("bytes {}-{}/{}", first, last, content.size());
  return answer;
}

}  // namespace pelton::hub
