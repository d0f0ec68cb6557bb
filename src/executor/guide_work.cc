#include "executor/guide_work.h"

#include <algorithm>
#include <utility>

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/machine.h"

namespace pelton::executor {
namespace {

// Steps of the model go first, on processors that both want. Not the least of all: on a machine
// that is always busy it must go on too.
constexpr int kNiceness = 10;
// What a job is tried for before it counts as a long one: some 20 ms.
constexpr int64_t kTriedWork = 1'000'000;

void lower_priority() {
  // What cannot be had is no error: it is the same work at a worse moment.
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNiceness);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : base::usable_cpus()) CPU_SET(static_cast<size_t>(cpu), &cpus);
  (void)pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
}

}  // namespace

// Each token, what is forced and the mask have a limit of their own, so that it does not matter in
// how many pieces the work was done, or whether it is done again after a preemption.
GuideTask::Status GuideTask::run(int64_t work_max, const std::atomic<bool>* cancelled) {
  int64_t left = work_max;
  const auto within = [&](const auto& part) -> Status {
    grammar::WorkBudget budget({.done_max = std::min(left, grammar::kWorkMax),
                                .total_max = grammar::kWorkMax,
                                .cancelled = cancelled});
    const bool follows = part(budget);
    left -= budget.done();
    work += budget.done();
    if (budget.exceeds_total()) return Status::kTooMuch;
    if (budget.exhausted()) return Status::kGivenUp;
    return follows ? Status::kDone : Status::kNotAllowed;
  };
  for (; tokens_done < tokens.size(); ++tokens_done) {
    const Status status = within(
        [&](grammar::WorkBudget& budget) { return guide.accept(tokens[tokens_done], budget); });
    if (status != Status::kDone) return status;
  }
  if (forced_max > 0) {
    const Status status = within([&](grammar::WorkBudget& budget) {
      forced = guide.accept_forced(static_cast<size_t>(forced_max), budget);
      return true;
    });
    if (status != Status::kDone) return status;
    forced_max = 0;
  }
  if (!wants_mask) return Status::kDone;
  return within([&](grammar::WorkBudget& budget) {
    allowed = guide.mask(mask, budget);
    return allowed.empty() || grammar::allows_other(allowed, {});
  });
}

// Once the delegated constructor is done the destructor ends what was started before a refusal.
GuideThreads::GuideThreads(int long_threads) : GuideThreads() {
  threads_.emplace_back([this] { work(new_, kTriedWork); });
  for (int i = 0; i < long_threads; ++i) {
    threads_.emplace_back([this] { work(long_, grammar::kWorkMax); });
  }
}

GuideThreads::~GuideThreads() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const Job& job : running_) job->cancelled = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void GuideThreads::add(Job job) {
  {
    const std::lock_guard lock(mutex_);
    new_.add(std::move(job));
  }
  changed_.notify_all();
}

void GuideThreads::Line::add(Job job) {
  std::deque<Job>& jobs = waiting_[job->tenant];
  jobs.push_back(std::move(job));
}

GuideThreads::Job GuideThreads::Line::take() {
  auto tenant = waiting_.upper_bound(served_last_);
  if (tenant == waiting_.end()) tenant = waiting_.begin();
  served_last_ = tenant->first;
  Job job = std::move(tenant->second.front());
  tenant->second.pop_front();
  if (tenant->second.empty()) waiting_.erase(tenant);
  return job;
}

void GuideThreads::work(Line& line, int64_t work_max) {
  pthread_setname_np(pthread_self(), "pelton-format");
  lower_priority();
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !line.empty(); });
    if (stopping_) return;
    const Job job = line.take();
    if (job->cancelled) continue;
    running_.push_back(job);
    lock.unlock();
    const GuideTask::Status status = job->task.run(work_max, &job->cancelled);
    const bool is_over = status != GuideTask::Status::kGivenUp || job->cancelled;
    if (is_over) {
      job->status = status;
      job->deferral->is_over.store(true, std::memory_order_release);
    }
    lock.lock();
    std::erase(running_, job);
    if (is_over) continue;
    long_.add(job);
    changed_.notify_all();
  }
}

void GuideFollower::begin(grammar::GrammarState guide, std::span<const TokenId> history,
                          std::string tenant) {
  clear();
  guide_ = std::make_unique<grammar::GrammarState>(std::move(guide));
  history_.assign(history.begin(), history.end());
  tenant_ = std::move(tenant);
}

void GuideFollower::clear() {
  take_back();
  guide_ = nullptr;
  history_.clear();
  forced_.clear();
  is_known_ = false;
  is_slow_ = false;
  failure_ = GuideTask::Status::kDone;
}

void GuideFollower::take_back() {
  if (job_) job_->cancelled = true;
  job_ = nullptr;
}

GuideFollower::State GuideFollower::find_allowed(const Grant& grant) {
  if (failure_ != GuideTask::Status::kDone) return State::kFailed;
  if (job_) {
    if (!job_->is_over()) return State::kLater;
    const std::shared_ptr<GuideJob> job = std::exchange(job_, nullptr);
    is_slow_ = job->task.work > grant.work_max;
    return adopt(job->task, job->status, grant.mask_words);
  }
  if (is_known_) return State::kKnown;
  GuideTask task(*guide_);
  task.tokens = history_;
  task.wants_mask = true;
  return run(std::move(task), grant);
}

size_t GuideFollower::count_allowed(std::span<const TokenId> guesses, int64_t work_max) const {
  if (!is_known_ || guesses.empty()) return guesses.size();
  if (!grammar::may_be(allowed_, guesses[0])) return 0;
  grammar::GrammarState fork = *guide_;
  grammar::WorkBudget budget({.done_max = std::min(work_max, grammar::kWorkMax)});
  for (size_t i = 0; i < guesses.size() && !fork.over(); ++i) {
    const bool follows = fork.accept(guesses[i], budget);
    if (budget.exhausted()) break;
    if (!follows) return i;
  }
  return guesses.size();
}

GuideFollower::State GuideFollower::accept(TokenId token, int forced_max, const Grant& grant) {
  is_known_ = false;
  GuideTask task(*guide_);
  task.tokens = {token};
  task.forced_max = forced_max;
  return run(std::move(task), grant);
}

// At once if that is not too much, else beside the steps: then with the mask.
GuideFollower::State GuideFollower::run(GuideTask task, const Grant& grant) {
  if (!is_slow_) {
    GuideTask trial = task;
    trial.mask.swap(memory_);
    const GuideTask::Status status = trial.run(grant.work_max, nullptr);
    if (status != GuideTask::Status::kGivenUp) return adopt(trial, status, grant.mask_words);
    trial.mask.swap(memory_);
  }
  task.wants_mask = true;
  job_ = std::make_shared<GuideJob>(std::move(task), tenant_);
  grant.threads.add(job_);
  return State::kLater;
}

GuideFollower::State GuideFollower::adopt(GuideTask& task, GuideTask::Status status,
                                          size_t mask_words) {
  if (status == GuideTask::Status::kGivenUp) status = GuideTask::Status::kTooMuch;
  failure_ = status;
  if (status != GuideTask::Status::kDone) return State::kFailed;
  *guide_ = std::move(task.guide);
  history_.clear();
  forced_ = std::move(task.forced);
  memory_ = std::move(task.mask);
  is_known_ = task.wants_mask;
  allowed_ = task.allowed;
  if (allowed_.empty() || allowed_.size() >= mask_words) return State::kKnown;
  // Rows may be wider than the vocabulary that a mask is over: what is beyond has no token.
  if (allowed_.data() != memory_.data()) memory_.assign(allowed_.begin(), allowed_.end());
  memory_.resize(mask_words, 0);
  allowed_ = memory_;
  return State::kKnown;
}

// A 400: what the request asked for cannot be followed further. Its own fault, not the server's.
Error GuideFollower::error() const {
  if (failure_ == GuideTask::Status::kTooMuch) {
    return {ErrorCode::kUnsupported,
            "The answer's format became too ambiguous to follow: its rules can read the text so "
            "far in more ways than are followed. Write it with fewer rules that can match the "
            "same text, or ask for shorter answers",
            ""};
  }
  return {ErrorCode::kUnsupported,
          "The answer's format leaves nothing that may follow the text so far: its rules lead "
          "into a place without a way on, or can read the text in more ways than are followed",
          ""};
}

}  // namespace pelton::executor
