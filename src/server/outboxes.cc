#include "server/outboxes.h"

#include <utility>

namespace pelton::server {

// An outbox and the notifier that wakes its thread.
class Outboxes::Round final : public net::NotifierTask {
 public:
  static std::shared_ptr<Round> on_thread_of(net::Exchange& exchange) {
    const auto round = std::make_shared<Round>();
    round->notifier_ = exchange.make_thread_notifier(round);
    return round->notifier_ == nullptr ? nullptr : round;
  }

  void run() override { outbox.deliver(); }

  engine::Outbox outbox{[this] { notifier_->notify(); }};

 private:
  std::shared_ptr<net::Notifier> notifier_;  // which knows this weakly
};

std::shared_ptr<engine::Outbox> Outboxes::of_thread(net::Exchange& exchange) {
  const void* const name = exchange.thread_name();
  if (name == nullptr) return nullptr;
  std::lock_guard lock(mutex_);
  std::shared_ptr<Round>& round = rounds_[name];
  if (round == nullptr) round = Round::on_thread_of(exchange);
  if (round == nullptr) return nullptr;
  return {round, &round->outbox};
}

}  // namespace pelton::server
