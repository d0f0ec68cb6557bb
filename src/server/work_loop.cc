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

void WorkLoop::post(std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    posted_.push_back(std::move(work));
  }
  filled_.notify_one();
}

void WorkLoop::run() {
  std::vector<std::function<void()>> work;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      filled_.wait(lock, [&] { return stopping_ || !posted_.empty(); });
      if (posted_.empty()) return;
      work.swap(posted_);
    }
    for (const std::function<void()>& one : work) one();
    work.clear();
  }
}

}  // namespace pelton::server
