#include "server/work_pool.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock.h"

namespace pelton::server {
namespace {

using Outcome = WorkPool::Outcome;
using Attempt = WorkPool::Attempt;
using Ticket = std::shared_ptr<WorkPool::Ticket>;

// A gate that jobs wait at until it is opened.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void await_waiting() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ > 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int waiting_ = 0;
};

// What was done, in order.
class Diary {
 public:
  void note(const std::string& what) {
    const std::lock_guard lock(mutex_);
    notes_.push_back(what);
    changed_.notify_all();
  }
  std::vector<std::string> await(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return notes_.size() >= count; });
    return notes_;
  }
  size_t size() {
    const std::lock_guard lock(mutex_);
    return notes_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> notes_;
};

void spin_cpu(std::chrono::milliseconds time) {
  timespec now{};
  const auto cpu_ns = [&] {
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  };
  const int64_t until = cpu_ns() + std::chrono::nanoseconds(time).count();
  while (cpu_ns() < until) {
  }
}

class WorkPoolTest : public testing::Test {
 protected:
  WorkPool::Job job(const std::string& tenant, const std::string& name,
                    std::function<Outcome(const Attempt&)> run) {
    return {.tenant = tenant,
            .run = std::move(run),
            .done = [this, name](const std::optional<Error>& error) {
              diary_.note(error ? name + " " + std::string(error_code_name(error->code)) : name);
            }};
  }
  static Outcome at_once(const Attempt& /*attempt*/) { return Outcome::kDone; }
  Ticket submit(WorkPool& pool, WorkPool::Job job) {
    auto ticket = pool.submit(std::move(job));
    EXPECT_TRUE(ticket.ok());
    return ticket.ok() ? *std::move(ticket) : nullptr;
  }
  // Both lanes' threads stand still until the gate opens.
  std::vector<Ticket> block(WorkPool& pool) {
    std::vector<Ticket> tickets;
    tickets.push_back(submit(pool, job("block", "long", [this](const Attempt& attempt) {
                               if (!attempt.is_last) return Outcome::kOutOfTime;
                               long_gate_.pass();
                               return Outcome::kDone;
                             })));
    long_gate_.await_waiting();
    tickets.push_back(submit(pool, job("block", "short", [this](const Attempt&) {
                               short_gate_.pass();
                               return Outcome::kDone;
                             })));
    short_gate_.await_waiting();
    return tickets;
  }

  base::SystemClock clock_;
  Diary diary_;
  Gate short_gate_;
  Gate long_gate_;
};

TEST_F(WorkPoolTest, D2_WhatIsQuicklyDoneDoesNotWaitForWhatIsNot) {
  WorkPool pool({}, clock_);
  const Ticket slow = submit(pool, job("a", "slow", [this](const Attempt& attempt) {
                               if (!attempt.is_last) return Outcome::kOutOfTime;
                               EXPECT_GT(attempt.cpu_us_max, 10'000);
                               long_gate_.pass();
                               return Outcome::kDone;
                             }));
  long_gate_.await_waiting();
  const Ticket quick = submit(pool, job("a", "quick", at_once));
  EXPECT_EQ(diary_.await(1), std::vector<std::string>{"quick"});
  long_gate_.open();
  EXPECT_EQ(diary_.await(2), (std::vector<std::string>{"quick", "slow"}));
  EXPECT_EQ(pool.stats().ended[static_cast<size_t>(WorkPool::End::kDone)], 2);
  EXPECT_EQ(pool.seconds().read().count(), 2);
}

TEST_F(WorkPoolTest, D2_TenantsTakeTurnsByProcessorTime) {
  WorkPool pool({}, clock_);
  const std::vector<Ticket> blocks = block(pool);
  std::vector<Ticket> tickets;
  const auto costly = [](const Attempt&) {
    spin_cpu(std::chrono::milliseconds(5));
    return Outcome::kDone;
  };
  for (int i = 0; i < 6; ++i) tickets.push_back(submit(pool, job("greedy", "greedy", costly)));
  for (int i = 0; i < 2; ++i) tickets.push_back(submit(pool, job("modest", "modest", at_once)));
  short_gate_.open();
  std::vector<std::string> order = diary_.await(9);
  order.erase(order.begin());  // the block
  // It came last and has spent next to nothing, so after one of the greedy it has both its turns.
  EXPECT_EQ(order[1], "modest");
  EXPECT_EQ(order[2], "modest");
  EXPECT_EQ(order[7], "greedy");
  long_gate_.open();
}

TEST_F(WorkPoolTest, D2_TheLinesAreBounded) {
  WorkPool::Options options;
  options.short_lane.waiting_max = 4;
  options.short_lane.waiting_per_tenant_max = 3;
  WorkPool pool(options, clock_);
  const std::vector<Ticket> blocks = block(pool);
  std::vector<Ticket> tickets;
  for (int i = 0; i < 3; ++i) tickets.push_back(submit(pool, job("a", "a", at_once)));
  EXPECT_EQ(pool.submit(job("a", "refused", at_once)).error().code, ErrorCode::kOverloaded);
  tickets.push_back(submit(pool, job("b", "b", at_once)));
  EXPECT_EQ(pool.submit(job("c", "refused", at_once)).error().code, ErrorCode::kOverloaded);
  EXPECT_EQ(pool.stats().waiting[0], 4);
  EXPECT_GT(pool.retry_after_ns(), 0);
  short_gate_.open();
  long_gate_.open();
  diary_.await(6);
  tickets.push_back(submit(pool, job("a", "again", at_once)));
  EXPECT_EQ(diary_.await(7).back(), "again");
}

// A client that has left does not keep what its job looks at: whoever owns that stops the pool
// first.
TEST_F(WorkPoolTest, D2_NoJobRunsAfterStop) {
  WorkPool pool({}, clock_);
  auto model = std::make_unique<std::atomic<int>>(1);
  Ticket left = submit(pool, job("a", "left", [this, &model](const Attempt& attempt) {
                         if (!attempt.is_last) return Outcome::kOutOfTime;
                         long_gate_.pass();
                         EXPECT_EQ(model->load(), 1);
                         EXPECT_TRUE(attempt.stopped.load());
                         return Outcome::kDone;
                       }));
  long_gate_.await_waiting();
  left.reset();
  long_gate_.open();
  pool.stop();
  model->store(2);
  model.reset();
  EXPECT_EQ(pool.submit(job("a", "late", at_once)).error().code, ErrorCode::kUnavailable);
}

TEST_F(WorkPoolTest, D2_OneThatFindsNoRoomAmongTheLongIsTold) {
  WorkPool::Options options;
  options.long_lane.waiting_max = 1;
  WorkPool pool(options, clock_);
  const auto late = [](const Attempt& attempt) {
    return attempt.is_last ? Outcome::kDone : Outcome::kOutOfTime;
  };
  const Ticket running = submit(pool, job("a", "first", [this](const Attempt& attempt) {
                                  if (!attempt.is_last) return Outcome::kOutOfTime;
                                  long_gate_.pass();
                                  return Outcome::kDone;
                                }));
  long_gate_.await_waiting();
  const Ticket waiting = submit(pool, job("a", "second", late));
  while (pool.stats().waiting[1] == 0) std::this_thread::yield();
  const Ticket refused = submit(pool, job("b", "third", late));
  EXPECT_EQ(diary_.await(1), std::vector<std::string>{"third overloaded"});
  long_gate_.open();
  EXPECT_EQ(diary_.await(3).back(), "second");
}

TEST_F(WorkPoolTest, D2_MemoryThatWaitsIsBounded) {
  WorkPool::Options options;
  options.waiting_bytes_max = 100;
  options.waiting_bytes_per_tenant_max = 60;
  WorkPool pool(options, clock_);
  const std::vector<Ticket> blocks = block(pool);
  const auto of = [&](const std::string& tenant, int64_t bytes) {
    WorkPool::Job one = job(tenant, tenant, at_once);
    one.bytes = bytes;
    return pool.submit(std::move(one));
  };
  const auto large = of("a", 90);  // one may always wait
  EXPECT_TRUE(large.ok());
  EXPECT_FALSE(of("a", 5).ok());
  const auto small = of("b", 5);
  EXPECT_TRUE(small.ok());
  EXPECT_FALSE(of("c", 30).ok());
  short_gate_.open();
  long_gate_.open();
  diary_.await(4);
}

TEST_F(WorkPoolTest, D2_WhoLeavesIsNotCompiled) {
  WorkPool pool({}, clock_);
  const std::vector<Ticket> blocks = block(pool);
  bool ran = false;
  const auto held = std::make_shared<int>();
  Ticket waiting = submit(pool, job("a", "never", [&ran, held](const Attempt&) {
                            ran = true;
                            return Outcome::kDone;
                          }));
  waiting->cancel();
  EXPECT_EQ(pool.stats().waiting[0], 0);
  EXPECT_EQ(held.use_count(), 1);  // and what it held is gone
  short_gate_.open();
  long_gate_.open();
  diary_.await(2);
  EXPECT_FALSE(ran);
  EXPECT_EQ(pool.stats().ended[static_cast<size_t>(WorkPool::End::kCancelled)], 1);
}

TEST_F(WorkPoolTest, D2_WhatRunsIsToldToStop) {
  WorkPool pool({}, clock_);
  std::promise<void> began;
  std::promise<void> stopped;
  Ticket running = submit(pool, job("a", "never", [&](const Attempt& attempt) {
                            began.set_value();
                            while (!attempt.stopped) std::this_thread::yield();
                            stopped.set_value();
                            return Outcome::kOutOfTime;
                          }));
  began.get_future().wait();
  running.reset();
  stopped.get_future().wait();
  const Ticket after = submit(pool, job("a", "after", at_once));
  EXPECT_EQ(diary_.await(1), std::vector<std::string>{"after"});
  while (pool.stats().running > 0) std::this_thread::yield();
  EXPECT_EQ(pool.stats().waiting[1], 0);
}

TEST_F(WorkPoolTest, D2_ADeadlineThatPassesWhileItWaits) {
  base::VirtualClock clock;
  WorkPool pool({}, clock);
  const std::vector<Ticket> blocks = block(pool);
  bool ran = false;
  WorkPool::Job late = job("a", "late", [&ran](const Attempt&) {
    ran = true;
    return Outcome::kDone;
  });
  late.deadline_ns = 1'000;
  const Ticket ticket = submit(pool, std::move(late));
  clock.advance_ns(2'000);
  short_gate_.open();
  EXPECT_EQ(diary_.await(2).back(), "late deadline");
  EXPECT_FALSE(ran);
  long_gate_.open();
}

TEST_F(WorkPoolTest, D2_TheEndDropsWhatWaits) {
  Ticket running;
  Ticket waiting;
  const auto held = std::make_shared<int>();
  {
    WorkPool::Options options;
    options.short_lane.threads = 1;
    WorkPool pool(options, clock_);
    std::promise<void> began;
    running = submit(pool, job("a", "never", [&](const Attempt& attempt) {
                       began.set_value();
                       while (!attempt.stopped) std::this_thread::yield();
                       return Outcome::kDone;
                     }));
    began.get_future().wait();
    waiting = submit(pool, job("a", "never", [held](const Attempt&) { return Outcome::kDone; }));
  }
  EXPECT_EQ(diary_.size(), 0u);
  EXPECT_EQ(held.use_count(), 1);
  waiting->cancel();  // and tickets may outlive it
  running.reset();
}

TEST_F(WorkPoolTest, D2_ManyThreadsSubmitAndLeave) {
  WorkPool::Options options;
  options.short_lane.threads = 2;
  WorkPool pool(options, clock_);
  std::atomic<int> done{0};
  std::atomic<int> left{0};
  std::vector<std::thread> clients;
  for (int c = 0; c < 4; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < 300; ++i) {
        auto ticket = pool.submit({.tenant = std::to_string(c % 3),
                                   .run =
                                       [i](const Attempt& attempt) {
                                         return i % 7 == 0 && !attempt.is_last ? Outcome::kOutOfTime
                                                                               : Outcome::kDone;
                                       },
                                   .done = [&](const std::optional<Error>&) { ++done; }});
        ASSERT_TRUE(ticket.ok());
        if (i % 3 == 0) {
          (*ticket)->cancel();
          ++left;
          continue;
        }
        while (pool.stats().waiting[0] + pool.stats().waiting[1] + pool.stats().running > 0) {
          std::this_thread::yield();
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  const WorkPool::Stats stats = pool.stats();
  EXPECT_EQ(stats.waiting[0] + stats.waiting[1], 0);
  int64_t ended = 0;
  for (const int64_t count : stats.ended) ended += count;
  EXPECT_EQ(ended, 4 * 300);
  EXPECT_EQ(done + stats.ended[static_cast<size_t>(WorkPool::End::kCancelled)], 4 * 300);
}

}  // namespace
}  // namespace pelton::server
