// The work that it takes to follow an answer's grammar (grammar/grammar_state.h): going over a
// token, what must come behind it, and the mask of what may come next. It is bounded by counted
// steps, not by time. What is more than a step of the model may wait for is done beside the steps,
// by threads of low priority, one tenant's work after the other's.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/token_id.h"
#include "engine/step_plan.h"
#include "grammar/grammar_state.h"

namespace pelton::executor {

// From `guide` over `tokens` to a mask. A value.
struct GuideTask {
  enum class Status : uint8_t {
    kDone,
    kGivenUp,     // more work than was granted, or nobody wants it any more
    kNotAllowed,  // a token that may not come, or nothing may come
    kTooMuch,     // more work than any request may cause
  };

  explicit GuideTask(grammar::GrammarState guide) : guide(std::move(guide)) {}

  // Goes as far as so many steps of work reach, and never beyond grammar::kWorkMax for each token,
  // for what is forced and for the mask. Given up, it goes on from the last of these parts that was
  // done when it is run again; with kWorkMax steps one part more is done, or none ever will be.
  Status run(int64_t work_max, const std::atomic<bool>* cancelled);

  grammar::GrammarState guide;
  std::vector<TokenId> tokens;  // to go over
  size_t tokens_done = 0;       // of these
  int forced_max = 0;           // of what must come behind them, which it goes over too; 0: done
  bool wants_mask = false;

  // When it is done:
  std::vector<TokenId> forced;
  std::vector<uint64_t> mask;  // what `allowed` may lie in
  std::span<const uint64_t> allowed;
  int64_t work = 0;
};

// A task on its way. Whoever waits for it reads the task once `deferral` is over.
struct GuideJob {
  GuideJob(GuideTask task, std::string tenant) : task(std::move(task)), tenant(std::move(tenant)) {}

  GuideTask task;
  GuideTask::Status status = GuideTask::Status::kGivenUp;
  const std::string tenant;
  std::atomic<bool> cancelled{false};
  const std::shared_ptr<engine::Deferral> deferral = std::make_shared<engine::Deferral>();

  bool is_over() const { return deferral->is_over.load(std::memory_order_acquire); }
};

// The threads. Any thread may add; as many jobs as there are slots, and those that were cancelled.
// A job is tried for some milliseconds first, by a thread that does nothing else: short ones do not
// wait for long ones. A long one, such as going over a whole answer again after a preemption, gives
// way to the other tenants' every kWorkMax steps.
class GuideThreads {
 public:
  explicit GuideThreads(int long_threads);
  ~GuideThreads();  // cancels what is left
  GuideThreads(const GuideThreads&) = delete;
  GuideThreads& operator=(const GuideThreads&) = delete;

  void add(std::shared_ptr<GuideJob> job);

 private:
  GuideThreads() = default;

  using Job = std::shared_ptr<GuideJob>;

  // Jobs that wait, a queue for each tenant. Tenants take turns, in the order of their names.
  class Line {
   public:
    bool empty() const { return waiting_.empty(); }
    void add(Job job);
    Job take();

   private:
    std::map<std::string, std::deque<Job>> waiting_;  // none empty
    std::string served_last_;                         // a tenant
  };

  void work(Line& line, int64_t work_max);

  std::mutex mutex_;
  std::condition_variable changed_;
  Line new_;   // to be tried
  Line long_;  // have been tried
  std::vector<Job> running_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

// One slot's answer on its way through its grammar. Executor thread and, between its steps, its
// workers; one at a time.
class GuideFollower {
 public:
  enum class State : uint8_t {
    kKnown,
    kLater,   // see deferral()
    kFailed,  // see error()
  };
  struct Grant {
    GuideThreads& threads;
    int64_t work_max = 0;   // of what is done at once
    size_t mask_words = 0;  // masks have at least as many
  };

  GuideFollower() = default;
  ~GuideFollower() { clear(); }
  GuideFollower(GuideFollower&&) noexcept = default;
  GuideFollower& operator=(GuideFollower&&) noexcept = default;

  // An answer begins, or goes on behind `history`.
  void begin(grammar::GrammarState guide, std::span<const TokenId> history, std::string tenant);
  void clear();
  bool active() const { return guide_ != nullptr; }
  // Nothing is asked of what follows.
  bool over() const { return guide_->over(); }
  std::vector<uint64_t>& memory() { return memory_; }  // of masks

  // What may come next becomes known.
  State find_allowed(const Grant& grant);
  std::span<const uint64_t> allowed() const { return allowed_; }  // empty: all

  // How many of these guesses may come next, one after the other. What is not known, or not known
  // with so much work, counts as what may.
  size_t count_allowed(std::span<const TokenId> guesses, int64_t work_max) const;

  // Goes over a token that was allowed, and over at most `forced_max` that must come behind it.
  // kLater: find_allowed() is asked again until it says otherwise; the token is then gone over.
  State accept(TokenId token, int forced_max, const Grant& grant);
  // As if a token of which it was said kLater had not been, before find_allowed() was asked again.
  void take_back();
  std::vector<TokenId> take_forced() { return std::exchange(forced_, {}); }

  std::shared_ptr<const engine::Deferral> deferral() const { return job_->deferral; }
  Error error() const;

 private:
  State run(GuideTask task, const Grant& grant);
  State adopt(GuideTask& task, GuideTask::Status status, size_t mask_words);

  std::unique_ptr<grammar::GrammarState> guide_;
  std::vector<TokenId> history_;  // not gone over yet
  std::string tenant_;
  std::vector<uint64_t> memory_;
  std::span<const uint64_t> allowed_;
  bool is_known_ = false;
  std::vector<TokenId> forced_;
  GuideTask::Status failure_ = GuideTask::Status::kDone;
  bool is_slow_ = false;  // the last task was more than was granted
  std::shared_ptr<GuideJob> job_;
};

}  // namespace pelton::executor
