// A deadline that is moved far more often than it passes: moving it back does not touch the timer,
// which looks at the clock again when it goes off. Internal to this room; its owner's loop thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

namespace pelton::net {

class DeadlineTimer {
 public:
  DeadlineTimer(boost::asio::io_context& context, std::function<void()> passed)
      : timer_(context), passed_(std::move(passed)) {}

  // `owner` is kept alive while the timer waits.
  void set(std::chrono::milliseconds after, const std::shared_ptr<void>& owner) {
    pending_ = true;
    at_ = std::chrono::steady_clock::now() + after;
    if (!armed_ || timer_.expiry() > at_) arm(owner);
  }
  void clear() { pending_ = false; }
  // Lets the owner go too.
  void cancel() {
    pending_ = false;
    timer_.cancel();
  }

 private:
  void arm(const std::shared_ptr<void>& owner) {
    armed_ = true;
    timer_.expires_at(at_);
    timer_.async_wait([this, owner](const boost::system::error_code& error) {
      if (error) return;  // cancelled, or armed anew for an earlier time
      armed_ = false;
      if (!pending_) return;
      if (std::chrono::steady_clock::now() < at_) return arm(owner);
      pending_ = false;
      passed_();
    });
  }

  boost::asio::steady_timer timer_;
  const std::function<void()> passed_;
  bool armed_ = false;
  bool pending_ = false;
  std::chrono::steady_clock::time_point at_;
};

}  // namespace pelton::net
