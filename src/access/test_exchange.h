// A way back for tests, which keeps what is sent on it. One thread.
#pragma once

#include <chrono>
#include <functional>
#include <string_view>
#include <utility>

#include "net/http_server.h"

namespace pelton::access {

class TestExchange final : public net::Exchange {
 public:
  int status = 0;  // 0: nothing has been sent

  void send(net::HttpResponse response) override { status = response.status; }
  void start_stream(int sent, net::HttpHeaders) override { status = sent; }
  void write(std::string_view) override {}
  void finish() override {}
  size_t queued_bytes() const override { return 0; }
  void on_drained(std::function<void()>) override {}
  void on_closed(std::function<void()>) override {}
  bool closed() const override { return false; }
  void post(std::function<void()> work) override { work(); }
  void post_after(std::chrono::milliseconds, std::function<void()>) override {}
};

}  // namespace pelton::access
