#include "server/work_pool.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <new>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "admission/fair_queue.h"

namespace pelton::server {
namespace {

using admission::FairQueue;

constexpr size_t kShort = 0;
constexpr size_t kLong = 1;
constexpr int64_t kTypicalNsAtFirst = 10'000'000;
// The time of one job, lately: each counts for an eighth.
constexpr int64_t kTypicalShare = 8;

telemetry::Histogram second_bounds() {
  return telemetry::Histogram({.0001, .0003, .001, .003, .01, .03, .1, .3, 1, 3, 10, 30});
}

int64_t thread_cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
}

Error overloaded(std::string message) {
  return {ErrorCode::kOverloaded, std::move(message), ""};
}

void join(std::vector<std::thread>& threads) {
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

// One job. Its functions are moved out by whoever runs, ends or cancels it, under done_mutex for
// `done` and by the one thread that has taken it from its lane for `run`.
struct WorkPool::Entry {
  Job job;
  int64_t submitted_ns = 0;
  std::atomic<bool> stopped{false};
  std::mutex done_mutex;  // held while `job.done` runs
  // Under State's mutex.
  FairQueue::Item item;
  size_t lane = kShort;
  bool waits = false;
};

class WorkPool::State {
 public:
  State(const Options& options, const base::Clock& clock) : options_(options), clock_(clock) {}

  Result<void> add(const std::shared_ptr<Entry>& entry, size_t lane);
  void work(size_t lane);
  void cancel(const std::shared_ptr<Entry>& entry);
  void stop();
  int64_t retry_after_ns() const;
  Stats stats() const;

  Error expired() const {
    return {ErrorCode::kDeadline,
            fmt::format("The request's deadline passed before {}", options_.expired), ""};
  }
  std::string thread_name(size_t lane) const {
    return options_.thread_name + (lane == kShort ? "" : "-l");
  }

  const Lane& lane_of(size_t lane) const {
    return lane == kShort ? options_.short_lane : options_.long_lane;
  }
  const base::Clock& clock() const { return clock_; }
  const telemetry::Histogram& seconds() const { return seconds_; }

 private:
  struct Tenant {
    int waiting = 0;
    int64_t bytes = 0;
  };
  struct Queue {
    FairQueue fair{FairQueue::Options{}};
    std::map<int64_t, std::shared_ptr<Entry>> entries;   // that wait, by the item's id
    std::map<std::string, Tenant, std::less<>> tenants;  // of those
    int64_t bytes = 0;
    int64_t typical_ns = kTypicalNsAtFirst;
    std::condition_variable filled;
  };

  std::shared_ptr<Entry> take(size_t lane);
  void leave_line(const Entry& entry);
  void run(const std::shared_ptr<Entry>& entry, size_t lane);
  void finish(Entry& entry, End end, std::optional<Error> error);
  void count(End end) { ended_[static_cast<size_t>(end)].fetch_add(1); }

  const Options options_;
  const base::Clock& clock_;
  telemetry::Histogram seconds_ = second_bounds();
  std::array<std::atomic<int64_t>, kEndNames.size()> ended_{};
  std::atomic<int64_t> cpu_us_{0};

  mutable std::mutex mutex_;
  std::array<Queue, 2> queues_;  // guarded by mutex_, as are those below
  std::vector<std::shared_ptr<Entry>> running_;
  int64_t last_id_ = 0;
  bool stopping_ = false;
};

Result<void> WorkPool::State::add(const std::shared_ptr<Entry>& entry, size_t lane) {
  const Job& job = entry->job;
  const std::lock_guard lock(mutex_);
  Queue& queue = queues_[lane];
  const Lane& limits = lane_of(lane);
  if (stopping_) return Error{ErrorCode::kUnavailable, "The server is shutting down", ""};
  const auto known = queue.tenants.find(job.tenant);
  const Tenant before = known == queue.tenants.end() ? Tenant{} : known->second;
  if (static_cast<int>(queue.entries.size()) >= limits.waiting_max) {
    return overloaded(fmt::format("too many {} {}", options_.jobs, options_.waiting));
  }
  if (before.waiting >= limits.waiting_per_tenant_max) {
    return overloaded(
        fmt::format("too many {} of this account (without API keys all clients share one) {}",
                    options_.jobs, options_.waiting));
  }
  const bool too_large =
      (queue.bytes > 0 && queue.bytes + job.bytes > options_.waiting_bytes_max) ||
      (before.bytes > 0 && before.bytes + job.bytes > options_.waiting_bytes_per_tenant_max);
  if (too_large) {
    return overloaded(fmt::format("{} of too many bytes {}", options_.jobs, options_.waiting));
  }
  queue.fair.enter(job.tenant, job.weight);
  entry->lane = lane;
  entry->waits = true;
  entry->item = {.id = ++last_id_, .rank = queue.fair.rank(0)};
  queue.fair.add(job.tenant, entry->item);
  queue.entries.emplace(entry->item.id, entry);
  Tenant& tenant = queue.tenants[job.tenant];
  ++tenant.waiting;
  tenant.bytes += job.bytes;
  queue.bytes += job.bytes;
  queue.filled.notify_one();
  return {};
}

// Under mutex_. Its tenant takes part in the lane until it leave()s that too.
void WorkPool::State::leave_line(const Entry& entry) {
  Queue& queue = queues_[entry.lane];
  queue.fair.remove(entry.job.tenant, entry.item);
  queue.entries.erase(entry.item.id);
  queue.bytes -= entry.job.bytes;
  const auto tenant = queue.tenants.find(entry.job.tenant);
  tenant->second.bytes -= entry.job.bytes;
  if (--tenant->second.waiting == 0) queue.tenants.erase(tenant);
}

// Null: the pool stops.
std::shared_ptr<WorkPool::Entry> WorkPool::State::take(size_t lane) {
  std::unique_lock lock(mutex_);
  Queue& queue = queues_[lane];
  queue.filled.wait(lock, [&] { return stopping_ || !queue.entries.empty(); });
  if (stopping_) return nullptr;
  std::shared_ptr<Entry> entry = queue.entries.at(*queue.fair.next({}));
  leave_line(*entry);
  entry->waits = false;
  running_.push_back(entry);
  return entry;
}

void WorkPool::State::work(size_t lane) {
  while (const std::shared_ptr<Entry> entry = take(lane)) run(entry, lane);
}

void WorkPool::State::run(const std::shared_ptr<Entry>& entry, size_t lane) {
  const int64_t began_us = thread_cpu_us();
  const int64_t began_ns = clock_.now_ns();
  const std::optional<int64_t> deadline_ns = entry->job.deadline_ns;
  const bool is_expired = deadline_ns && began_ns > *deadline_ns;
  Outcome outcome = Outcome::kDone;
  std::optional<Error> failed;
  if (!is_expired && !entry->stopped) {
    try {
      outcome = entry->job.run({.cpu_us_max = lane_of(lane).cpu_us_max,
                                .is_last = lane == kLong,
                                .stopped = entry->stopped});
    } catch (const std::bad_alloc&) {
      failed = Error{ErrorCode::kUnavailable,
                     fmt::format("There is not enough memory to {}", options_.work), ""};
    }
  }
  const int64_t spent_us = thread_cpu_us() - began_us;
  cpu_us_.fetch_add(spent_us);
  {
    const std::lock_guard lock(mutex_);
    std::erase(running_, entry);
    Queue& queue = queues_[lane];
    queue.fair.charge(entry->job.tenant, spent_us + 1);
    queue.fair.leave(entry->job.tenant);
    queue.typical_ns += (clock_.now_ns() - began_ns - queue.typical_ns) / kTypicalShare;
  }
  if (entry->stopped) {
    entry->job.run = nullptr;
    return;
  }
  if (is_expired) {
    return finish(*entry, End::kExpired, expired());
  }
  if (outcome == Outcome::kOutOfTime && lane == kShort) {
    const Result<void> added = add(entry, kLong);
    if (added.ok()) return;
    return finish(*entry, End::kRefused, added.error());
  }
  finish(*entry, End::kDone, std::move(failed));
}

// Unless it has been cancelled by now.
void WorkPool::State::finish(Entry& entry, End end, std::optional<Error> error) {
  entry.job.run = nullptr;
  // Let go outside the lock: with it may go whoever holds the ticket.
  std::function<void(std::optional<Error>)> done;
  const std::lock_guard lock(entry.done_mutex);
  done.swap(entry.job.done);
  if (!done) return;
  seconds_.observe(static_cast<double>(clock_.now_ns() - entry.submitted_ns) * 1e-9);
  count(end);
  try {
    done(std::move(error));
  } catch (const std::bad_alloc&) {
    // Nobody can be reached; whoever waits for it has the request's own deadline.
  }
}

void WorkPool::State::cancel(const std::shared_ptr<Entry>& entry) {
  std::function<void(std::optional<Error>)> done;
  {
    const std::lock_guard lock(entry->done_mutex);
    done = std::exchange(entry->job.done, nullptr);
    entry->stopped = true;
  }
  if (!done) return;  // it has come to its end
  count(End::kCancelled);
  std::function<Outcome(const Attempt&)> run;  // dropped outside the lock, it may hold much
  const std::lock_guard lock(mutex_);
  if (!entry->waits) return;  // it runs, or is about to: its thread sees that it is not wanted
  leave_line(*entry);
  entry->waits = false;
  queues_[entry->lane].fair.leave(entry->job.tenant);
  run.swap(entry->job.run);
}

void WorkPool::State::stop() {
  std::array<std::map<int64_t, std::shared_ptr<Entry>>, 2> waiting;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (size_t lane : {kShort, kLong}) {
      waiting[lane].swap(queues_[lane].entries);
      for (const auto& [id, entry] : waiting[lane]) entry->waits = false;
      queues_[lane].filled.notify_all();
    }
    for (const std::shared_ptr<Entry>& entry : running_) entry->stopped = true;
  }
  for (const auto& lane : waiting) {
    for (const auto& [id, entry] : lane) {
      entry->job.run = nullptr;
      std::function<void(std::optional<Error>)> done;  // let go outside the lock
      const std::lock_guard lock(entry->done_mutex);
      done.swap(entry->job.done);
    }
  }
}

int64_t WorkPool::State::retry_after_ns() const {
  const std::lock_guard lock(mutex_);
  int64_t longest = 0;
  for (const size_t lane : {kShort, kLong}) {
    const auto jobs = static_cast<int64_t>(queues_[lane].entries.size()) + 1;
    const int threads = lane_of(lane).threads;
    if (threads > 0) longest = std::max(longest, jobs * queues_[lane].typical_ns / threads);
  }
  return longest;
}

WorkPool::Stats WorkPool::State::stats() const {
  Stats stats;
  stats.cpu_us = cpu_us_;
  for (size_t i = 0; i < ended_.size(); ++i) stats.ended[i] = ended_[i];
  const std::lock_guard lock(mutex_);
  for (const size_t lane : {kShort, kLong}) {
    stats.waiting[lane] = static_cast<int>(queues_[lane].entries.size());
  }
  stats.running = static_cast<int>(running_.size());
  return stats;
}

WorkPool::WorkPool(const Options& options, const base::Clock& clock)
    : state_(std::make_shared<State>(options, clock)) {
  try {
    for (const size_t lane : {kShort, kLong}) {
      for (int i = 0; i < state_->lane_of(lane).threads; ++i) {
        threads_.emplace_back([state = state_.get(), lane] { work(*state, lane); });
      }
    }
  } catch (const std::system_error&) {  // reported at the start of the program
    state_->stop();
    join(threads_);
    throw;
  }
}

// A thread alone may lower its own priority (Linux: the process's number is the first thread's).
void WorkPool::work(State& state, size_t lane) {
  pthread_setname_np(pthread_self(), state.thread_name(lane).c_str());
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), state.lane_of(lane).nice);
  state.work(lane);
}

Error WorkPool::expired() const {
  return state_->expired();
}

WorkPool::~WorkPool() {
  stop();
}

void WorkPool::stop() {
  state_->stop();
  join(threads_);
  threads_.clear();
}

Result<std::shared_ptr<WorkPool::Ticket>> WorkPool::submit(Job job) {
  const auto entry = std::make_shared<Entry>();
  entry->job = std::move(job);
  entry->submitted_ns = state_->clock().now_ns();
  TRY(state_->add(entry, kShort));
  return std::make_shared<Ticket>(state_, entry);
}

int64_t WorkPool::retry_after_ns() const {
  return state_->retry_after_ns();
}
WorkPool::Stats WorkPool::stats() const {
  return state_->stats();
}
const telemetry::Histogram& WorkPool::seconds() const {
  return state_->seconds();
}

WorkPool::Ticket::Ticket(std::weak_ptr<State> state, std::shared_ptr<Entry> entry)
    : state_(std::move(state)), entry_(std::move(entry)) {}

WorkPool::Ticket::~Ticket() {
  cancel();
}

void WorkPool::Ticket::cancel() {
  if (const std::shared_ptr<State> state = state_.lock()) state->cancel(entry_);
}

}  // namespace pelton::server
