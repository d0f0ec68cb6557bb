#include "server/work_loop.h"

#include <utility>

#include <pthread.h>

namespace pelton::server {

WorkLoop::WorkLoop() : thread_([this] { run(); }) {
  pthread_setname_np(thread_.native_handle(), "pelton-grpc");
}

WorkLoop::~WorkLoop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  filled_.notify_one();
  thread_.join();
}

// Notified under the lock: what is posted may lead to the loop's end.
void WorkLoop::post(std::function<void()> work) {
  std::lock_guard lock(mutex_);
  posted_.push_back(std::move(work));
  filled_.notify_one();
}

void WorkLoop::post_after(std::chrono::milliseconds delay, std::function<void()> work) {
  std::lock_guard lock(mutex_);
  later_.emplace(std::chrono::steady_clock::now() + delay, std::move(work));
  filled_.notify_one();
}

// With the lock held: what is due joins what has been posted.
void WorkLoop::take_due() {
  const Time now = std::chrono::steady_clock::now();
  while (!later_.empty() && later_.begin()->first <= now) {
    posted_.push_back(std::move(later_.begin()->second));
    later_.erase(later_.begin());
  }
}

void WorkLoop::run() {
  std::vector<std::function<void()>> work;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      for (take_due(); posted_.empty() && !stopping_; take_due()) {
        if (later_.empty()) {
          filled_.wait(lock);
        } else {
          filled_.wait_until(lock, Time(later_.begin()->first));  // a copy: the map may change
        }
      }
      if (posted_.empty()) return;
      work.swap(posted_);
    }
    for (const std::function<void()>& one : work) one();
    work.clear();
  }
}

}  // namespace pelton::server
