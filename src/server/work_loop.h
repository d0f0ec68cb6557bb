// One thread that does what it is given, in order: where calls live whose own library calls back on
// any thread. Owned by its door.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace pelton::server {

class WorkLoop {
 public:
  WorkLoop();
  // Does what has been posted, and joins.
  ~WorkLoop();
  WorkLoop(const WorkLoop&) = delete;
  WorkLoop& operator=(const WorkLoop&) = delete;

  void post(std::function<void()> work);  // any thread
  // Any thread: after a while, unless the loop has gone by then.
  void post_after(std::chrono::milliseconds delay, std::function<void()> work);

 private:
  void run();
  void take_due();

  using Time = std::chrono::steady_clock::time_point;

  std::mutex mutex_;
  std::condition_variable filled_;
  std::vector<std::function<void()>> posted_;         // guarded by mutex_
  std::multimap<Time, std::function<void()>> later_;  // guarded by mutex_
  bool stopping_ = false;                             // guarded by mutex_
  std::thread thread_;
};

}  // namespace pelton::server
