// The way back of a request that changes something: its answer is a line of the audit log before it
// is sent. What was done waits for the disk; what was refused is counted (AuditLog::note_often), as
// anybody may ask for it, and so is what was begun for a client that left before its answer. Of a
// path or method that nothing is at there is no line. As the exchange that it stands for; the audit
// log outlives the listener.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "access/audit_log.h"
#include "net/http_message.h"
#include "net/http_server.h"

namespace pelton::access {

class AuditedExchange final : public net::Exchange {
 public:
  // kCounted: any caller may ask for it as often as it likes, so that nothing waits for the disk.
  enum class Done : uint8_t { kWritten, kCounted };
  // `event`: all but its date and result.
  AuditedExchange(std::shared_ptr<net::Exchange> exchange, AuditLog& audit, AuditEvent event,
                  Done done = Done::kWritten)
      : exchange_(std::move(exchange)), audit_(audit), event_(std::move(event)), done_(done) {}
  ~AuditedExchange() override;

  void send(net::HttpResponse response) override;
  void start_stream(int status, net::HttpHeaders headers) override;
  void write(std::string_view bytes) override { exchange_->write(bytes); }
  void finish() override { exchange_->finish(); }
  size_t queued_bytes() const override { return exchange_->queued_bytes(); }
  void on_drained(std::function<void()> drained) override {
    exchange_->on_drained(std::move(drained));
  }
  void on_closed(std::function<void()> closed) override { exchange_->on_closed(std::move(closed)); }
  bool closed() const override { return exchange_->closed(); }
  void post(std::function<void()> work) override { exchange_->post(std::move(work)); }
  std::shared_ptr<net::Notifier> make_notifier(std::weak_ptr<net::NotifierTask> work) override {
    return exchange_->make_notifier(std::move(work));
  }
  std::shared_ptr<net::Notifier> make_thread_notifier(
      std::weak_ptr<net::NotifierTask> work) override {
    return exchange_->make_thread_notifier(std::move(work));
  }
  const void* thread_name() const override { return exchange_->thread_name(); }
  void post_after(std::chrono::milliseconds delay, std::function<void()> work) override {
    exchange_->post_after(delay, std::move(work));
  }

 private:
  void note(int status, std::string_view body);

  const std::shared_ptr<net::Exchange> exchange_;
  AuditLog& audit_;
  AuditEvent event_;
  const Done done_;
  bool is_noted_ = false;
};

bool is_reading(const net::HttpRequest& request);  // GET, HEAD, OPTIONS
// "10.0.0.7" of "10.0.0.7:51234".
std::string address_of(const net::HttpRequest& request);
// What an answer says of what was asked for: "done", "refused: 404 model_not_found".
std::string audit_result(int status, std::string_view body);
// Of what is done to one of many: "drain" of "gpu-7" for "/v1/workers/gpu-7/drain" below
// "/v1/workers/"; otherwise the method of the whole path, with what stands behind it.
AuditEvent audit_event_of(const net::HttpRequest& request, std::string_view collection);

}  // namespace pelton::access
