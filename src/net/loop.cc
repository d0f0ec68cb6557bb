#include "net/loop.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <new>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <pthread.h>

#include "base/check.h"
#include "base/machine.h"
#include "net/http_server.h"
#include "net/http_time.h"

namespace pelton::net {

Loop::~Loop() {
  CHECK(!thread_.joinable(), "a Loop must be stopped before it goes");
}

void Loop::start() {
  CHECK(!thread_.joinable());
  for (std::string& buffer : outgoing_) outgoing_free_.push_back(&buffer);
  // Makes the context's descriptors, which the first connection would else.
  (void)boost::asio::steady_timer(context_);
  // The id is known before anything runs there.
  std::mutex mutex;
  std::condition_variable known;
  bool is_known = false;
  thread_ = std::thread([&, this] {
    thread_id_ = std::this_thread::get_id();
    pthread_setname_np(pthread_self(), "pelton-net");
    (void)base::ask_for_short_turns();
    {
      // Notified under the lock: the waiter's variables go as soon as it can have it.
      std::lock_guard lock(mutex);
      is_known = true;
      known.notify_one();
    }
    run();
  });
  std::unique_lock lock(mutex);
  known.wait(lock, [&] { return is_known; });
}

void Loop::run() {
  // Who needed memory in vain has lost its turn (Connection::out_of_memory sees to the common
  // cases); the others must not.
  for (bool over = false; !over;) {
    try {
      context_.run();
      over = true;
    } catch (const std::bad_alloc&) {
    }
  }
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  // What was posted before the listener closed still runs, here where it belongs.
  context_.restart();
  context_.poll();
}

void Loop::stop() {
  if (!thread_.joinable()) return;
  CHECK(!on_thread(), "a Loop cannot stop itself");
  work_.reset();
  context_.stop();
  thread_.join();
}

bool Loop::post(std::function<void()> work) {
  std::lock_guard lock(mutex_);
  if (closed_) return false;
  wake_if_idle();
  posted_.push_back(std::move(work));
  return true;
}

void Loop::notify(std::shared_ptr<NotifiedTask> work) {
  if (on_thread() && running_notified_) return being_run_.push_back(std::move(work));
  std::lock_guard lock(mutex_);
  if (closed_) return;
  wake_if_idle();
  notified_.push_back(std::move(work));
}

// Once for all that comes before it does.
void Loop::wake_if_idle() {
  if (!posted_.empty() || !notified_.empty()) return;
  boost::asio::post(context_, [this] { run_posted(); });
}

// What they post in turn comes in the next turn, after sockets and timers have had theirs.
void Loop::run_posted() {
  std::vector<std::function<void()>> posted;
  {
    std::lock_guard lock(mutex_);
    posted.swap(posted_);
    being_run_.swap(notified_);
  }
  // Who needs memory in vain loses its turn, as in run(); the others do not.
  const auto do_it = [](const auto& work) {
    try {
      work();
    } catch (const std::bad_alloc&) {
    }
  };
  for (std::function<void()>& work : posted) do_it(std::exchange(work, nullptr));
  run_notified();
}

// The first alone, so that nobody waits for others before anything is written, then in groups that
// grow.
void Loop::run_notified() {
  const auto do_it = [](NotifiedTask& work, void (NotifiedTask::*what)()) {
    try {
      (work.*what)();
    } catch (const std::bad_alloc&) {
    }
  };
  running_notified_ = true;
  size_t group = 1;
  for (size_t begin = 0; begin < being_run_.size();) {
    const size_t end = std::min(being_run_.size(), begin + group);
    for (size_t i = begin; i < end; ++i) do_it(*being_run_[i], &NotifiedTask::run);
    for (size_t i = begin; i < end; ++i) {
      do_it(*being_run_[i], &NotifiedTask::leave);
      being_run_[i] = nullptr;
    }
    begin = end;
    group = std::min(2 * group, kGroupMax);
  }
  running_notified_ = false;
  being_run_.clear();
}

std::string* Loop::lend_outgoing() {
  if (outgoing_free_.empty()) return nullptr;
  std::string* const buffer = outgoing_free_.back();
  outgoing_free_.pop_back();
  return buffer;
}

const std::string& Loop::http_date_now() {
  const int64_t second = std::chrono::duration_cast<std::chrono::seconds>(
                             std::chrono::system_clock::now().time_since_epoch())
                             .count();
  if (second != date_second_) {
    date_second_ = second;
    date_ = http_date(second);
  }
  return date_;
}

}  // namespace pelton::net
