// Programs that are spoken to line by line over their standard input and output, as servers of the
// Model Context Protocol may be. One thread reads and writes for all of them; what they print on
// standard error is dropped. They get none of this process' descriptors and of its environment only
// PATH, HOME, LANG, TZ and TMPDIR: no keys. Any thread; events come on the one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/result.h"

namespace pelton::mcp {

class Processes {
 public:
  struct Events {
    std::function<void(std::string_view line)> on_line;
    // Once, last: it has ended, with a word why. Not after end().
    std::function<void(const std::string& why)> on_end;
  };
  struct Bounds {
    size_t line_bytes_max = size_t{4} << 20;        // a longer line ends it
    size_t unread_bytes_max = size_t{4} << 20;      // that it has not read of what it was sent
    std::chrono::milliseconds end_time_max{1'000};  // from its input's end until it is killed
  };
  using Id = int64_t;

  Processes();
  // Kills all.
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // `words`: the program, looked for in PATH, and its arguments. Errors: kNotFound, kIo.
  Result<Id> start(const std::vector<std::string>& words, const Bounds& bounds, Events events);
  // A line without its end. Dropped if it has ended.
  void send(Id id, std::string_view line);
  // Its input ends; whoever does not end by that is killed, with what it has started. No event
  // comes after this, but one that is being given just now.
  void end(Id id);
  int count() const;
  // For deadlines: `work` runs on the one thread at that time or soon after, whatever the programs
  // do. Short of memory, it runs again a moment later.
  void run_at(std::chrono::steady_clock::time_point time, std::function<void()> work);

 private:
  struct Process {
    int pid = 0;
    int in = -1;   // its standard input; -1: closed
    int out = -1;  // likewise
    Bounds bounds;
    std::shared_ptr<const Events> events;             // null: nobody is interested any more
    std::string unread;                               // by it
    std::string line;                                 // that has not ended
    std::string why;                                  // it was ended here
    std::chrono::steady_clock::time_point kill_at{};  // once it is to end
    bool is_ending = false;
  };
  struct Happened {
    std::shared_ptr<const Events> events;
    std::vector<std::string> lines;
    std::string ended;  // why; empty: it has not
  };

  using Timers = std::multimap<std::chrono::steady_clock::time_point, std::function<void()>>;

  void run();
  void emit(const Happened& happened);
  void run_timers();
  void wait_for_some();
  std::vector<Happened> look();
  void read_from(Process& process, Happened& happened);
  void write_to(Process& process);
  bool is_over(Process& process, Happened& happened);
  static void close_input(Process& process);
  void wake() const;

  mutable std::mutex mutex_;  // of what follows
  std::map<Id, Process> processes_;
  Timers timers_;
  Id last_id_ = 0;
  bool is_stopping_ = false;

  int wake_read_ = -1;
  int wake_write_ = -1;
  std::thread thread_;  // last
};

}  // namespace pelton::mcp
