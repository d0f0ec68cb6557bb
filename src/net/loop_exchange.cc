#include "net/loop_exchange.h"

namespace pelton::net {

// It may be dropped on any thread, the responder be gone by the time that the loop comes to it.
LoopExchange::~LoopExchange() {
  loop_->post([responder = responder_] {
    if (*responder != nullptr) (*responder)->abandon();
  });
}

void LoopExchange::send(HttpResponse response) {
  if (*responder_ != nullptr) (*responder_)->send(std::move(response));
}

// The status is the stream's last word here, and headers have no place.
void LoopExchange::start_stream(int /*status*/, HttpHeaders /*headers*/) {
  if (*responder_ != nullptr) (*responder_)->take_up();
}

void LoopExchange::write(std::string_view frames) {
  if (*responder_ != nullptr) (*responder_)->write(frames);
}

void LoopExchange::finish() {
  if (*responder_ != nullptr) (*responder_)->finish();
}

size_t LoopExchange::queued_bytes() const {
  return *responder_ == nullptr ? 0 : (*responder_)->queued_bytes();
}

void LoopExchange::on_closed(std::function<void()> closed) {
  if (*responder_ != nullptr) {
    closed_ = std::move(closed);
  } else {
    loop_->post(std::move(closed));
  }
}

void LoopExchange::drain() {
  const std::function<void()> drained = drained_;
  if (drained) drained();
}

void LoopExchange::end() {
  *responder_ = nullptr;
  // They may hold this.
  const std::function<void()> drained = std::exchange(drained_, nullptr);
  const std::function<void()> closed = std::exchange(closed_, nullptr);
}

void LoopExchange::leave() {
  const std::function<void()> closed = closed_;
  end();
  if (closed) closed();
}

}  // namespace pelton::net
