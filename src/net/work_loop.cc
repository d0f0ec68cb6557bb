#include "net/work_loop.h"

#include <utility>

#include <pthread.h>

namespace pelton::net {

WorkLoop::WorkLoop(const char* name) : thread_([this] { run(*queue_); }) {
  pthread_setname_np(thread_.native_handle(), name);
}

WorkLoop::~WorkLoop() {
  {
    std::lock_guard lock(queue_->mutex_);
    queue_->stopping_ = true;
    queue_->filled_.notify_one();
  }
  thread_.join();
  // Dropped outside the lock: with it may go what posts.
  std::vector<std::function<void()>> posted;
  std::multimap<Queue::Time, std::function<void()>> later;
  std::lock_guard lock(queue_->mutex_);
  queue_->ended_ = true;
  posted.swap(queue_->posted_);
  later.swap(queue_->later_);
}

// Notified under the lock: what is posted may lead to the loop's end.
void WorkLoop::Queue::post(std::function<void()> work) {
  std::lock_guard lock(mutex_);
  if (ended_) return;
  posted_.push_back(std::move(work));
  filled_.notify_one();
}

void WorkLoop::Queue::post_after(std::chrono::milliseconds delay, std::function<void()> work) {
  std::lock_guard lock(mutex_);
  if (ended_) return;
  later_.emplace(std::chrono::steady_clock::now() + delay, std::move(work));
  filled_.notify_one();
}

// With the lock held: what is due joins what has been posted.
void WorkLoop::Queue::take_due() {
  const Time now = std::chrono::steady_clock::now();
  while (!later_.empty() && later_.begin()->first <= now) {
    posted_.push_back(std::move(later_.begin()->second));
    later_.erase(later_.begin());
  }
}

void WorkLoop::run(Queue& queue) {
  std::vector<std::function<void()>> work;
  while (true) {
    {
      std::unique_lock lock(queue.mutex_);
      for (queue.take_due(); queue.posted_.empty() && !queue.stopping_; queue.take_due()) {
        if (queue.later_.empty()) {
          queue.filled_.wait(lock);
        } else {
          // A copy: the map may change.
          queue.filled_.wait_until(lock, Queue::Time(queue.later_.begin()->first));
        }
      }
      if (queue.posted_.empty()) return;
      work.swap(queue.posted_);
    }
    for (const std::function<void()>& one : work) one();
    work.clear();
  }
}

}  // namespace pelton::net
