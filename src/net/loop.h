// One thread that runs an Asio context, and the way other threads reach it. Internal to this room.
// Shared, because an exchange or a call may outlive the server or client whose thread this is: then
// post() still is safe, and says no.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

// IWYU: only the parts of Asio that this room needs, for the sake of compile time.
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

namespace pelton::net {

// Work that a loop is asked for again and again; see Notifier.
class NotifiedTask {
 public:
  virtual ~NotifiedTask() = default;
  // On the loop's thread. See NotifierTask.
  virtual void run() = 0;
  // Soon after: what was said there goes to the kernel. Between the two are runs of others.
  virtual void leave() {}
};

class Loop {
 public:
  Loop() = default;
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void start();
  // Runs what is ready, lets nothing more in, and joins. Not on the loop's own thread.
  void stop();

  // Any thread. False, and `work` is dropped, once stop() is through. What is posted before the
  // loop comes to it runs in one turn: a step's tokens for hundreds of streams cost one wake-up.
  bool post(std::function<void()> work);
  // Any thread. The same for work that is made once: nothing is allocated. Dropped after stop().
  // What notified work notifies in its turn still is of the same turn.
  void notify(std::shared_ptr<NotifiedTask> work);
  bool on_thread() const { return std::this_thread::get_id() == thread_id_; }

  boost::asio::io_context& context() { return context_; }
  // For the loop's own thread: bytes just read, until the next read. One for all connections,
  // because thousands of idle ones need none.
  std::array<char, 64 * 1024>& scratch() { return scratch_; }
  // For the loop's own thread: what one piece of work says, before the kernel has it. Empty when it
  // is lent and when it is given back; null if all are lent.
  std::string* lend_outgoing();
  void give_back_outgoing(std::string* buffer) { outgoing_free_.push_back(buffer); }
  // "Date" of this second; written once a second.
  const std::string& http_date_now();

 private:
  // So many pieces of notified work are run before what they have said is written. Both are long
  // ways through different code, which does not fit into the first-level cache together.
  static constexpr size_t kGroupMax = 16;

  void run();
  void run_posted();
  void run_notified();
  void wake_if_idle();  // under mutex_

  boost::asio::io_context context_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      context_.get_executor()};
  std::mutex mutex_;
  bool closed_ = false;                                   // under mutex_
  std::vector<std::function<void()>> posted_;             // under mutex_
  std::vector<std::shared_ptr<NotifiedTask>> notified_;   // under mutex_
  std::vector<std::shared_ptr<NotifiedTask>> being_run_;  // being run; its room is used again
  bool running_notified_ = false;                         // on the loop's thread
  std::thread thread_;
  std::thread::id thread_id_;
  std::array<char, 64 * 1024> scratch_{};
  std::array<std::string, kGroupMax> outgoing_;
  std::vector<std::string*> outgoing_free_;
  int64_t date_second_ = -1;
  std::string date_;
};

}  // namespace pelton::net
