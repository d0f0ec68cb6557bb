#include "speech/transcriber.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <pthread.h>

namespace pelton::speech {
namespace {

constexpr double kSecond = 1e-9;
constexpr int64_t kLookNs = 200'000'000;  // how late a deadline is noticed in the queue
constexpr int64_t kRetryNsMax = 60'000'000'000;

std::vector<double> seconds_bounds() {
  return {0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1800, 3600};
}
std::vector<double> speed_bounds() {
  return {0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 8, 12, 20, 40, 80, 160, 320, 1000};
}

}  // namespace

struct Transcriber::Job {
  Request request;
  int64_t arrived_ns = 0;
  std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
  std::atomic<bool> is_abandoned = false;
  std::optional<Error> why;  // of one that is; guarded by mutex_

  // Of the thread that has it.
  std::unique_ptr<Recognition> recognition;
  double seconds = 0.0;
  int64_t began_ns = 0;  // 0: no window has been heard
  size_t segments_sent = 0;
};

Transcriber::Transcriber(const Options& options, const Recogniser& recogniser, ReadSound read_sound,
                         const base::Clock& clock)
    : options_(options),
      recogniser_(recogniser),
      read_sound_(std::move(read_sound)),
      clock_(clock),
      queue_seconds_(seconds_bounds()),
      first_text_seconds_(seconds_bounds()),
      audio_seconds_(seconds_bounds()),
      speed_(speed_bounds()),
      live_text_seconds_(seconds_bounds()),
      hearing_thread_([this] { hear(); }) {
  for (std::thread& thread : sound_threads_) thread = std::thread([this] { read_files(); });
}

Transcriber::~Transcriber() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  abandon({ErrorCode::kUnavailable, "The model is being unloaded", ""});
  changed_.notify_all();
  for (std::thread& thread : sound_threads_) thread.join();
  hearing_thread_.join();
}

int Transcriber::locked_inside() const {
  return static_cast<int>(unread_.size() + reading_.size() + parked_.size() + heard_.size() +
                          hearing_.size());
}

Result<void> Transcriber::check(const Task& task) const {
  const auto refuse = [&](std::string_view field, int asked) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'{}' is {}; here it is at most {} (--transcription-beams)", field,
                             asked, options_.beams_max),
                 std::string(field)};
  };
  if (task.search.beam_size > options_.beams_max) {
    return refuse("beam_size", task.search.beam_size);
  }
  if (task.search.best_of > options_.beams_max) return refuse("best_of", task.search.best_of);
  return recogniser_.check(task);
}

Result<std::shared_ptr<Transcriber::Ticket>> Transcriber::submit(Request request) {
  TRY(check(request.task));
  const auto job = std::make_shared<Job>();
  const auto bytes = static_cast<int64_t>(request.file.size());
  job->request = std::move(request);
  job->arrived_ns = clock_.now_ns();
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return Error{ErrorCode::kUnavailable, "The model is being unloaded", ""};
    std::string why = locked_refusal(job->request.account);
    if (why.empty()) why = locked_refusal_of_bytes(bytes);
    if (!why.empty()) {
      ++stats_.ended[static_cast<size_t>(End::kRefused)];
      return Error{ErrorCode::kOverloaded, why, ""};
    }
    waiting_bytes_ += bytes;
    unread_.push_back(job);
  }
  changed_.notify_all();
  return std::make_shared<Ticket>(job->cancelled);
}

std::string Transcriber::locked_refusal_of_bytes(int64_t bytes) const {
  if (unread_.empty() || waiting_bytes_ + bytes <= options_.waiting_bytes_max) return {};
  return fmt::format("the files that wait to be transcribed have {} bytes, of at most {}",
                     waiting_bytes_, options_.waiting_bytes_max);
}

std::string Transcriber::locked_refusal(const std::string& account) const {
  int all = locked_inside();
  const auto is_own = [&](const JobPtr& other) { return other->request.account == account; };
  auto own = static_cast<int>(std::ranges::count_if(hearing_, is_own));
  for (const auto* queue : {&unread_, &reading_, &parked_, &heard_}) {
    own += static_cast<int>(std::ranges::count_if(*queue, is_own));
  }
  for (const std::weak_ptr<Live>& weak : live_) {
    const std::shared_ptr<Live> live = weak.lock();
    if (live == nullptr) continue;
    ++all;
    if (live->request_.account == account) ++own;
  }
  if (all >= options_.waiting_max) {
    return fmt::format("{} files wait to be transcribed, which is the most", all);
  }
  if (account.empty() || own < options_.waiting_per_account_max) return {};
  return fmt::format("{} files of this account wait to be transcribed, which is the most", own);
}

bool Transcriber::is_wanted(const Job& job) const {
  return !job.cancelled->load(std::memory_order_relaxed) &&
         !job.is_abandoned.load(std::memory_order_acquire) &&
         clock_.now_ns() < job.request.deadline_ns.value_or(INT64_MAX);
}

namespace {

template <typename Jobs>
double seconds_of(const Jobs& jobs) {
  double seconds = 0.0;
  for (const auto& job : jobs) seconds += job->seconds;
  return seconds;
}

}  // namespace

void Transcriber::locked_wait(Lock& lock) {
  if (locked_inside() == 0) return changed_.wait(lock);
  changed_.wait_for(lock, std::chrono::nanoseconds(kLookNs));
}

void Transcriber::locked_sweep(Lock& lock) {
  std::vector<JobPtr> unwanted;
  for (std::deque<JobPtr>* queue : {&unread_, &parked_, &heard_}) {
    std::erase_if(*queue, [&](const JobPtr& job) {
      if (is_wanted(*job)) return false;
      unwanted.push_back(job);
      return true;
    });
  }
  if (unwanted.empty()) return;
  for (const JobPtr& job : unwanted) {
    waiting_bytes_ -= static_cast<int64_t>(job->request.file.size());
    job->request.file.clear();
  }
  lock.unlock();
  for (const JobPtr& job : unwanted) end(job, End::kFailed, Error{});
  unwanted.clear();
  changed_.notify_all();
  lock.lock();
}

// The first that fits, so that a short one does not wait for a long one's room.
void Transcriber::locked_admit_parked() {
  for (auto job = parked_.begin(); job != parked_.end();) {
    const double heard = seconds_of(heard_) + seconds_of(hearing_);
    const int count = static_cast<int>(heard_.size() + hearing_.size());
    const bool fits = count == 0 || (count < options_.heard_max &&
                                     heard + (*job)->seconds <= options_.heard_seconds_max);
    if (fits) heard_.push_back(*job);
    job = fits ? parked_.erase(job) : job + 1;
  }
}

bool Transcriber::locked_can_read() const {
  const double parked = seconds_of(parked_);
  return !unread_.empty() && (parked_.empty() || parked < options_.parked_seconds_max) &&
         static_cast<int>(parked_.size() + heard_.size()) < options_.heard_max;
}

void Transcriber::read_files() {
  pthread_setname_np(pthread_self(), "pelton-sound");
  Lock lock(mutex_);
  for (;;) {
    locked_sweep(lock);
    if (stopping_ && unread_.empty()) return;
    if (!locked_can_read()) {
      locked_wait(lock);
      continue;
    }
    const JobPtr job = unread_.front();
    unread_.pop_front();
    reading_.push_back(job);
    lock.unlock();
    read_one(job);
    lock.lock();
    std::erase(reading_, job);
    if (job->recognition != nullptr) parked_.push_back(job);
    locked_admit_parked();
    changed_.notify_all();
  }
}

void Transcriber::read_one(const JobPtr& job) {
  const std::string file = std::exchange(job->request.file, {});
  const auto go_on = [&] { return is_wanted(*job); };
  Result<std::vector<float>> samples = read_sound_(file, go_on);
  {
    const std::lock_guard lock(mutex_);
    waiting_bytes_ -= static_cast<int64_t>(file.size());
  }
  if (!samples.ok()) return end(job, End::kFailed, samples.error());
  job->seconds = static_cast<double>(samples->size()) / 16'000.0;
  auto begun = recogniser_.begin(*std::move(samples), job->request.task, go_on);
  if (!begun.ok()) return end(job, End::kFailed, begun.error());
  job->recognition = *std::move(begun);
}

void Transcriber::hear() {
  pthread_setname_np(pthread_self(), "pelton-hear");
  Lock lock(mutex_);
  for (;;) {
    locked_sweep(lock);
    locked_admit_parked();
    if (locked_hear_live(lock)) continue;
    if (heard_.empty()) {
      if (stopping_ && locked_inside() == 0) return;
      locked_wait(lock);
      continue;
    }
    const auto count = std::min(heard_.size(), static_cast<size_t>(options_.batch_max));
    const auto behind = heard_.begin() + static_cast<std::ptrdiff_t>(count);
    hearing_.assign(heard_.begin(), behind);
    heard_.erase(heard_.begin(), behind);
    const std::vector<JobPtr> jobs = hearing_;
    lock.unlock();
    const std::vector<JobPtr> more = hear_windows(jobs);
    lock.lock();
    hearing_.clear();
    heard_.insert(heard_.end(), more.begin(), more.end());
    changed_.notify_all();
  }
}

std::vector<Transcriber::JobPtr> Transcriber::hear_windows(const std::vector<JobPtr>& jobs) {
  const int64_t begin_ns = clock_.now_ns();
  std::vector<Turn> turns;
  for (const JobPtr& job : jobs) {
    turns.push_back({.recognition = job->recognition.get(),
                     .go_on = [this, one = job.get()] { return is_wanted(*one); }});
    if (job->began_ns != 0) continue;
    job->began_ns = begin_ns;
    queue_seconds_.observe(static_cast<double>(begin_ns - job->arrived_ns) * kSecond);
  }
  const std::vector<Result<bool>> results = recogniser_.step_all(turns);
  const int64_t end_ns = clock_.now_ns();
  {
    const std::lock_guard lock(mutex_);
    stats_.busy_seconds += static_cast<double>(end_ns - begin_ns) * kSecond;
    stats_.windows += static_cast<int64_t>(jobs.size());
  }
  std::vector<JobPtr> more;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (note_window(jobs[i], results[i], end_ns)) more.push_back(jobs[i]);
  }
  return more;
}

bool Transcriber::note_window(const JobPtr& job, const Result<bool>& more, int64_t end_ns) {
  if (!more.ok()) {
    end(job, End::kFailed, more.error());
    return false;
  }
  const std::vector<Segment>& all = job->recognition->transcript().segments;
  const size_t before = std::exchange(job->segments_sent, all.size());
  if (all.size() > before && before == 0) {
    first_text_seconds_.observe(static_cast<double>(end_ns - job->arrived_ns) * kSecond);
  }
  if (*more && !is_wanted(*job)) {
    end(job, End::kFailed, Error{});
    return false;
  }
  if (all.size() > before && job->request.on_segments) {
    job->request.on_segments({all.begin() + static_cast<std::ptrdiff_t>(before), all.end()});
  }
  if (*more) return true;
  audio_seconds_.observe(job->seconds);
  const double took = static_cast<double>(end_ns - job->arrived_ns) * kSecond;
  if (took > 0.0 && job->seconds > 0.0) speed_.observe(job->seconds / took);
  {
    const std::lock_guard lock(mutex_);
    stats_.audio_seconds += job->seconds;
  }
  end(job, End::kDone, job->recognition->transcript());
  return false;
}

// One that failed has mostly been given up: by its client, its deadline or whoever unloads the
// model.
void Transcriber::end(const JobPtr& job, End how, Result<Transcript> outcome) {
  if (how == End::kFailed) {
    std::optional<Error> why;
    {
      const std::lock_guard lock(mutex_);
      why = job->why;
    }
    if (job->cancelled->load(std::memory_order_relaxed)) {
      how = End::kCancelled;
    } else if (why) {
      outcome = *why;
    } else if (clock_.now_ns() >= job->request.deadline_ns.value_or(INT64_MAX)) {
      how = End::kExpired;
      outcome =
          Error{ErrorCode::kDeadline, "the deadline passed before all of it was transcribed", ""};
    }
  }
  job->recognition = nullptr;
  // Who has its answer may ask for the next one at once.
  {
    const std::lock_guard lock(mutex_);
    ++stats_.ended[static_cast<size_t>(how)];
    std::erase(reading_, job);
    std::erase(hearing_, job);
    ++ending_;
  }
  auto on_end = std::exchange(job->request.on_end, nullptr);
  job->request.on_segments = nullptr;
  if (how != End::kCancelled && on_end) on_end(std::move(outcome));
  on_end = nullptr;
  const std::lock_guard lock(mutex_);
  --ending_;
}

int Transcriber::abandon(const Error& error) {
  int count = 0;
  std::vector<std::shared_ptr<Live>> live;
  {
    const std::lock_guard lock(mutex_);
    const auto give_up = [&](const JobPtr& job) {
      job->why = error;
      job->is_abandoned.store(true, std::memory_order_release);
      ++count;
    };
    for (const auto* queue : {&unread_, &reading_, &parked_, &heard_}) {
      for (const JobPtr& job : *queue) give_up(job);
    }
    for (const JobPtr& job : hearing_) give_up(job);
    for (const std::weak_ptr<Live>& weak : live_) {
      if (auto one = weak.lock()) live.push_back(std::move(one));
    }
  }
  changed_.notify_all();
  for (const std::shared_ptr<Live>& one : live) {
    if (one->is_abandoned_.exchange(true)) continue;
    ++count;
    one->request_.on_abandoned(error);
  }
  return count;
}

void Transcriber::drain(int64_t ms) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(ms), [&] {
    return locked_inside() == 0 && ending_ == 0 && live_passes_.empty() && !hears_live_;
  });
}

int64_t Transcriber::retry_after_ns() const {
  const std::lock_guard lock(mutex_);
  const auto waiting = static_cast<double>(locked_inside());
  const auto done = stats_.ended[static_cast<size_t>(End::kDone)];
  if (done == 0) return 1'000'000'000;
  const double each_s = stats_.busy_seconds / static_cast<double>(done);
  return std::clamp<int64_t>(static_cast<int64_t>(waiting * each_s / 2.0 * 1e9), 1'000'000'000,
                             kRetryNsMax);
}

Transcriber::Stats Transcriber::stats() const {
  const std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.running = static_cast<int>(heard_.size() + hearing_.size());
  stats.waiting = locked_inside() - stats.running;
  stats.live = static_cast<int>(std::ranges::count_if(
      live_, [](const std::weak_ptr<Live>& live) { return !live.expired(); }));
  return stats;
}

}  // namespace pelton::speech
