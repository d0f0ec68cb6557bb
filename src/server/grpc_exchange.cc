#include "server/grpc_exchange.h"

namespace pelton::server {

// It may be dropped on any thread, the responder be gone by the time that the loop comes to it.
GrpcExchange::~GrpcExchange() {
  loop_->post([responder = responder_] {
    if (*responder != nullptr) (*responder)->abandon();
  });
}

void GrpcExchange::send(net::HttpResponse response) {
  if (*responder_ != nullptr) (*responder_)->send(std::move(response));
}

void GrpcExchange::write(std::string_view frames) {
  if (*responder_ != nullptr) (*responder_)->write(frames);
}

void GrpcExchange::finish() {
  if (*responder_ != nullptr) (*responder_)->finish();
}

size_t GrpcExchange::queued_bytes() const {
  return *responder_ == nullptr ? 0 : (*responder_)->queued_bytes();
}

void GrpcExchange::on_closed(std::function<void()> closed) {
  if (*responder_ != nullptr) {
    closed_ = std::move(closed);
  } else {
    loop_->post(std::move(closed));
  }
}

void GrpcExchange::drain() {
  const std::function<void()> drained = drained_;
  if (drained) drained();
}

void GrpcExchange::end() {
  *responder_ = nullptr;
  // They may hold this.
  const std::function<void()> drained = std::exchange(drained_, nullptr);
  const std::function<void()> closed = std::exchange(closed_, nullptr);
}

void GrpcExchange::leave() {
  const std::function<void()> closed = closed_;
  end();
  if (closed) closed();
}

}  // namespace pelton::server
