#include "server/outboxes.h"

#include <utility>

namespace pelton::server {

// An outbox and the notifier that wakes its thread.
class Outboxes::ThreadOutbox final : public net::NotifierTask {
 public:
  static std::shared_ptr<ThreadOutbox> on_thread_of(net::Exchange& exchange) {
    const auto made = std::make_shared<ThreadOutbox>();
    made->notifier_ = exchange.make_thread_notifier(made);
    return made->notifier_ == nullptr ? nullptr : made;
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
  std::shared_ptr<ThreadOutbox>& made = by_thread_[name];
  if (made == nullptr) made = ThreadOutbox::on_thread_of(exchange);
  if (made == nullptr) return nullptr;
  return {made, &made->outbox};
}

}  // namespace pelton::server
