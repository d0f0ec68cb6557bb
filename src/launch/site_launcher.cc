#include "launch/site_launcher.h"

#include <algorithm>

#include <fmt/format.h>
#include <pthread.h>

namespace pelton::launch {
namespace {

using State = LaunchedReplica::State;

Error refused(const std::string& why) {
  return {ErrorCode::kInvalidArgument, why, {}};
}

}  // namespace

Result<std::unique_ptr<SiteLauncher>> SiteLauncher::open(std::unique_ptr<ReplicaSite> site,
                                                         const Options& options,
                                                         const base::Clock& clock, base::Log& log) {
  std::unique_ptr<SiteLauncher> launcher(new SiteLauncher(std::move(site), options, clock, log));
  launcher->site_->set_on_change([one = launcher.get()] { one->wake(); });
  const Result<void> seen = launcher->look();
  if (!seen.ok() && seen.error().code == ErrorCode::kNotFound) return seen.error();
  launcher->note(seen);
  launcher->thread_ = std::thread([one = launcher.get()] { one->run(); });
  pthread_setname_np(launcher->thread_.native_handle(), "pelton-launch");
  return launcher;
}

SiteLauncher::SiteLauncher(std::unique_ptr<ReplicaSite> site, const Options& options,
                           const base::Clock& clock, base::Log& log)
    : site_(std::move(site)), options_(options), clock_(clock), log_(log) {}

SiteLauncher::~SiteLauncher() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_all();
  if (thread_.joinable()) thread_.join();
  site_.reset();  // its threads wake this one
}

void SiteLauncher::wake() {
  {
    std::lock_guard lock(mutex_);
    is_woken_ = true;
  }
  woken_.notify_all();
}

const LaunchedReplica* SiteLauncher::seen_at(const Place& place) const {
  const auto found = seen_.find(place);
  return found == seen_.end() ? nullptr : &found->second;
}

uint64_t SiteLauncher::newest_token() const {
  std::lock_guard lock(mutex_);
  return newest_token_;
}

bool SiteLauncher::is_known(const std::string& /*pool*/) const {
  std::lock_guard lock(mutex_);
  return is_known_;
}

Result<void> SiteLauncher::start(const ReplicaOrder& order) {
  const Place place{order.pool, order.ordinal};
  if (!site_->knows(order.pool) || order.ordinal < 0) {
    return refused(
        fmt::format("nothing says how a replica {}-{} is started", order.pool, order.ordinal));
  }
  {
    std::lock_guard lock(mutex_);
    if (!is_known_) return Error{ErrorCode::kUnavailable, "it is not known yet what runs", {}};
    if (const std::optional<LaunchedReplica> known = shown(place)) {
      const uint64_t token = known->order.token;
      if (token == order.token) return {};
      if (token > order.token) {
        return refused(fmt::format("the order {} for {}-{} is older than {}", order.token,
                                   order.pool, order.ordinal, token));
      }
      if (known->state != State::kEnded) {
        return refused(fmt::format("{}-{} still runs", order.pool, order.ordinal));
      }
    }
    if (epoch_of(order.token) < epoch_of(newest_token_)) {
      return refused(fmt::format("the order {} for {}-{} is older than the newest, {}", order.token,
                                 order.pool, order.ordinal, newest_token_));
    }
    newest_token_ = std::max(newest_token_, order.token);
    starts_[place] = {.order = order, .ordered_ns = clock_.now_ns(), .ended = {}};
  }
  wake();
  return {};
}

void SiteLauncher::stop(const ReplicaOrder& order, std::chrono::milliseconds grace) {
  const Place place{order.pool, order.ordinal};
  {
    std::lock_guard lock(mutex_);
    const std::optional<LaunchedReplica> known = shown(place);
    if (!known || known->order != order || known->state == State::kEnded) return;
    const auto [found, is_new] = stops_.try_emplace(place, Stop{.order = order, .grace = grace});
    if (!is_new && found->second.order == order && found->second.grace <= grace) return;
    found->second = {.order = order, .grace = grace};
  }
  wake();
}

std::vector<LaunchedReplica> SiteLauncher::list() {
  std::lock_guard lock(mutex_);
  std::vector<LaunchedReplica> all;
  for (const auto& [place, one] : seen_) all.push_back(*shown(place));
  for (const auto& [place, one] : starts_) {
    if (!seen_.contains(place)) all.push_back(*shown(place));
  }
  return all;
}

// What is known of a place: the site's word, but for orders that it has not heard yet.
std::optional<LaunchedReplica> SiteLauncher::shown(const Place& place) const {
  std::optional<LaunchedReplica> known;
  if (const LaunchedReplica* seen = seen_at(place)) known = *seen;
  const auto start = starts_.find(place);
  if (start != starts_.end() && (!known || known->order.token < start->second.order.token)) {
    const Start& asked = start->second;
    known = LaunchedReplica{.order = asked.order,
                            .state = asked.is_given_up ? State::kEnded : State::kRunning,
                            .host = {},
                            .ordered_ns = asked.ordered_ns,
                            .progress_ns = asked.ordered_ns,
                            .ended = asked.ended,
                            .is_hopeless = asked.is_hopeless};
  }
  if (!known || known->state != State::kRunning) return known;
  const auto stop = stops_.find(place);
  if (stop != stops_.end() && stop->second.order == known->order) known->state = State::kStopping;
  return known;
}

bool SiteLauncher::is_moving() const {
  const auto moves = [](const auto& one) {
    return one.second.state == State::kStopping ||
           (one.second.state == State::kRunning && one.second.port == 0);
  };
  return !stops_.empty() ||
         std::ranges::any_of(starts_, [](const auto& one) { return !one.second.is_given_up; }) ||
         std::ranges::any_of(seen_, moves);
}

void SiteLauncher::run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      // What failed is not tried again by being woken: who wakes may be the one that fails.
      const std::chrono::milliseconds pause = has_failed_   ? options_.try_again
                                              : is_moving() ? options_.look_soon
                                                            : options_.look_later;
      woken_.wait_for(lock, pause, [this] { return stopping_ || (is_woken_ && !has_failed_); });
      if (stopping_) return;
      is_woken_ = false;
    }
    has_failed_ = false;
    carry_out();
    note(look());
  }
}

void SiteLauncher::carry_out() {
  std::vector<Start> starts;
  std::vector<Stop> stops;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [place, one] : starts_) {
      const auto stop = stops_.find(place);
      const bool is_unwanted = stop != stops_.end() && stop->second.order == one.order;
      if (!one.is_sent && !one.is_given_up && !is_unwanted) starts.push_back(one);
    }
    for (const auto& [place, one] : stops_) {
      if (!one.is_sent) stops.push_back(one);
    }
  }
  // Who is to end does nothing more: each order may take long.
  for (const Stop& one : stops) {
    if (is_stopping()) return;
    carry_out(one);
  }
  for (const Start& one : starts) {
    if (is_stopping()) return;
    carry_out(one);
  }
}

bool SiteLauncher::is_stopping() {
  std::lock_guard lock(mutex_);
  return stopping_;
}

void SiteLauncher::carry_out(const Start& start) {
  const Result<void> done = site_->start(start.order);
  std::lock_guard lock(mutex_);
  const auto found = starts_.find({start.order.pool, start.order.ordinal});
  if (found == starts_.end() || found->second.order != start.order) return;
  Start& asked = found->second;
  if (done.ok()) {
    asked.is_sent = true;
    return;
  }
  const bool is_refused = done.error().code == ErrorCode::kInvalidArgument;
  const int64_t give_up_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(options_.give_up).count();
  const bool is_over = clock_.now_ns() - asked.ordered_ns >= give_up_ns;
  has_failed_ = has_failed_ || !is_refused;
  if (!is_refused && !is_over) return;
  asked.is_given_up = true;
  asked.ended = done.error().message;
  log_.warning(fmt::format("replica {}-{} is not started: {}", start.order.pool,
                           start.order.ordinal, asked.ended));
}

void SiteLauncher::carry_out(const Stop& stop) {
  const Result<void> done = site_->stop(stop.order, stop.grace);
  if (!done.ok()) {
    has_failed_ = true;
    return note(done);
  }
  std::lock_guard lock(mutex_);
  const auto found = stops_.find({stop.order.pool, stop.order.ordinal});
  if (found == stops_.end() || found->second.order != stop.order) return;
  if (found->second.grace == stop.grace) found->second.is_sent = true;
}

Result<void> SiteLauncher::look() {
  Result<std::vector<LaunchedReplica>> seen = site_->list();
  has_failed_ = has_failed_ || !seen.ok();
  if (!seen.ok()) return seen.error();
  note_first(*seen);
  take(*std::move(seen));
  return {};
}

// What an earlier life has left.
void SiteLauncher::note_first(const std::vector<LaunchedReplica>& seen) {
  std::lock_guard lock(mutex_);
  if (is_known_) return;
  newest_token_ = std::max(newest_token_, site_->newest_token());
  for (const LaunchedReplica& one : seen) {
    if (one.state == State::kEnded) continue;
    log_.info(fmt::format("replica {}-{} is found again", one.order.pool, one.order.ordinal));
  }
}

void SiteLauncher::take(std::vector<LaunchedReplica> seen) {
  std::lock_guard lock(mutex_);
  is_known_ = true;
  std::map<Place, LaunchedReplica> now;
  for (LaunchedReplica& one : seen) {
    now[{one.order.pool, one.order.ordinal}] = std::move(one);
  }
  // Of each place the last that has ended stays, also where the site has forgotten it.
  for (auto& [place, one] : seen_) {
    if (now.contains(place)) continue;
    if (one.state != State::kEnded) one.ended = "is not there any more";
    one.state = State::kEnded;
    now[place] = std::move(one);
  }
  seen_ = std::move(now);
  std::erase_if(starts_, [&](const auto& one) {
    const LaunchedReplica* there = seen_at(one.first);
    return there != nullptr && there->order.token >= one.second.order.token;
  });
  for (auto& [place, start] : starts_) {
    if (!start.is_sent || start.is_given_up) continue;
    start.is_given_up = true;
    start.ended = "is not there, though it was ordered";
  }
  for (auto& [place, stop] : stops_) {
    const auto start = starts_.find(place);
    if (start == starts_.end() || start->second.order != stop.order) continue;
    if (start->second.is_given_up || start->second.is_sent || !stop.is_sent) continue;
    start->second.is_given_up = true;
    start->second.ended = "was stopped before it was started";
  }
  std::erase_if(stops_, [&](const auto& one) {
    const std::optional<LaunchedReplica> known = shown(one.first);
    return !known || known->order != one.second.order || known->state == State::kEnded;
  });
}

void SiteLauncher::note(const Result<void>& done) {
  const std::string trouble = done.ok() ? "" : done.error().message;
  if (trouble == trouble_) return;
  if (trouble.empty()) {
    log_.info("replicas can be seen again");
  } else {
    log_.warning(fmt::format("replicas cannot be seen: {}; what was known stays", trouble));
  }
  trouble_ = trouble;
}

}  // namespace pelton::launch
