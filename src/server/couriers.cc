#include "server/couriers.h"

#include <utility>

namespace pelton::server {

// A courier and the bell that wakes its thread.
class Couriers::Round final : public net::BellWork {
 public:
  static std::shared_ptr<Round> on_thread_of(net::Exchange& exchange) {
    const auto round = std::make_shared<Round>();
    round->bell_ = exchange.make_thread_bell(round);
    return round->bell_ == nullptr ? nullptr : round;
  }

  void on_ring() override { courier.deliver(); }

  engine::Courier courier{[this] { bell_->ring(); }};

 private:
  std::shared_ptr<net::Bell> bell_;  // which knows this weakly
};

std::shared_ptr<engine::Courier> Couriers::of_thread(net::Exchange& exchange) {
  const void* const name = exchange.thread_name();
  if (name == nullptr) return nullptr;
  std::lock_guard lock(mutex_);
  std::shared_ptr<Round>& round = rounds_[name];
  if (round == nullptr) round = Round::on_thread_of(exchange);
  if (round == nullptr) return nullptr;
  return {round, &round->courier};
}

}  // namespace pelton::server
