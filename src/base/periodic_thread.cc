#include "base/periodic_thread.h"

#include <utility>

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

namespace pelton::base {

PeriodicThread::PeriodicThread(const Options& options, std::function<void()> turn)
    : options_(options), turn_(std::move(turn)) {
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), options_.name);
}

PeriodicThread::~PeriodicThread() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

void PeriodicThread::run() {
  if (options_.nice != 0) {
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), options_.nice);
  }
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, options_.interval, [&] { return stopping_; })) {
    lock.unlock();
    turn_();
    lock.lock();
  }
}

}  // namespace pelton::base
