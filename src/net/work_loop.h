// One thread that does what it is given, in order: where calls live whose own library calls back on
// any thread. Owned by its listener.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace pelton::net {

class WorkLoop {
 public:
  // What is to be done. Any thread. May be held for longer than the loop lives: then it drops what
  // it is given.
  class Queue {
   public:
    void post(std::function<void()> work);
    // After a while, unless the loop has gone by then.
    void post_after(std::chrono::milliseconds delay, std::function<void()> work);

   private:
    friend class WorkLoop;
    using Time = std::chrono::steady_clock::time_point;

    void take_due();

    std::mutex mutex_;
    std::condition_variable filled_;
    std::vector<std::function<void()>> posted_;         // guarded by mutex_, as all below
    std::multimap<Time, std::function<void()>> later_;  //
    bool stopping_ = false;
    bool ended_ = false;  // nobody takes anything any more
  };

  // The thread's name, as tools show it.
  explicit WorkLoop(const char* name = "pelton-grpc");
  // Does what has been posted, and joins.
  ~WorkLoop();
  WorkLoop(const WorkLoop&) = delete;
  WorkLoop& operator=(const WorkLoop&) = delete;

  void post(std::function<void()> work) { queue_->post(std::move(work)); }
  void post_after(std::chrono::milliseconds delay, std::function<void()> work) {
    queue_->post_after(delay, std::move(work));
  }
  std::shared_ptr<Queue> queue() const { return queue_; }

 private:
  static void run(Queue& queue);

  const std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
  std::thread thread_;
};

}  // namespace pelton::net
