// The part of gateway::Fleet in which the gateway of another region stands for a worker of each
// pool: what it says of its models is the load of an average worker there, and a request goes there
// only where that is worth the way.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/random.h"
#include "gateway/fleet.h"

namespace pelton::gateway {
namespace {

// So much sooner, and by so large a part, or it stays: else two regions that are as full would send
// each other their requests.
constexpr double kSoonerS = 0.01;
constexpr double kSoonerShare = 0.2;
// By so much at least where there is room here: what took long once, on a machine that was busy
// with something else, is no sickness.
constexpr double kSickS = 0.5;
// A worker that has just begun has no figures of its own yet: from so many steps on it has.
constexpr int64_t kKnownSteps = 200;
// Of requests that would leave a region whose workers are sick, one of so many stays: by these it
// is seen when they are well again.
constexpr uint64_t kStaysOneOf = 20;

bool is_sooner(double far_s, double near_s) {
  return near_s - far_s > kSoonerS && far_s < (1 - kSoonerShare) * near_s;
}

}  // namespace

int64_t Fleet::dispatched() const {
  std::lock_guard lock(mutex_);
  return dispatched_;
}

void Fleet::note_region(const RegionNews& news) {
  std::lock_guard lock(mutex_);
  const int64_t now_ns = clock_.now_ns();
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker == nullptr || worker->config.region != news.region) continue;
    const PoolConfig* const pool = find_pool(worker->config.pool);
    if (pool == nullptr) continue;
    std::vector<std::string> there;
    const RegionModel* first = nullptr;
    for (const std::string& name : pool->models) {
      const auto found = news.models.find(name);
      if (found == news.models.end() || found->second.ready == 0) continue;
      there.push_back(name);
      if (first == nullptr) first = &found->second;
    }
    const RegionModel load = first == nullptr ? RegionModel() : *first;
    // What comes back begins anew: what was lost there before says nothing of it.
    if (worker->health.state(now_ns) == cluster::WorkerState::kDown) ++worker->region_returns;
    worker->trouble.clear();
    worker->region_round_trip_s = news.round_trip_s;
    worker->region_egress_s_per_mb = news.egress_s_per_mb;
    worker->region_workers = std::max(load.ready, 1);
    worker->record = {.name = worker->shown,
                      .incarnation = fmt::format("region {} {} {}", news.region, worker->serial,
                                                 worker->region_returns),
                      .models = std::move(there),
                      .slots = std::max(load.slots, 1)};
    worker->record.region = std::string(news.region);
    worker->health.note_record(worker->record, now_ns);
    worker->health.note_probe(true);
    worker->health.note_load({.progress = worker->health.load().progress + 1,
                              .running = load.running,
                              .waiting = load.waiting,
                              .waiting_tokens = load.waiting_tokens,
                              .wait_s = load.wait_s,
                              .dispatch = news.dispatched,
                              .context_tokens = load.context_tokens,
                              .kv_used = load.kv_used,
                              .costs = load.costs},
                             now_ns);
    worker->over_since_report = 0;
    forget_counted(*worker, now_ns);
  }
}

// Nothing new for it; that a connection was refused once is no word of the whole region.
void Fleet::note_region_lost(std::string_view region, const std::string& trouble) {
  std::lock_guard lock(mutex_);
  const int64_t now_ns = clock_.now_ns();
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker == nullptr || worker->config.region != region) continue;
    worker->trouble = trouble;
    worker->health.note_watch_lost(false, now_ns);
  }
}

// Many stand behind it: what was sent since it spoke is shared among them, and of what runs there
// it says itself how much it is.
void Fleet::price_region(const Worker& worker, const Wanted& wanted, CostCandidate& one) const {
  one.distance_s = worker.region_round_trip_s;
  one.far_s = worker.region_egress_s_per_mb * static_cast<double>(wanted.body_bytes) * 1e-6;
  const int there = worker.region_workers;
  one.uncounted = (one.uncounted + there - 1) / there;
  for (const Worker::Uncounted& sent : worker.uncounted) {
    one.uncounted_tokens += sent.tokens / there;
  }
}

std::optional<size_t> Fleet::kept_near(const CostRequest& request,
                                       const std::vector<CostCandidate>& all,
                                       std::optional<size_t> chosen, uint64_t draw) const {
  if (!chosen) return chosen;
  if (workers_[*chosen]->kind != WorkerKind::kRegion) {
    return away_from_sick(request, all, *chosen, draw);
  }
  std::vector<CostCandidate> near = all;
  for (size_t i = 0; i < near.size(); ++i) {
    const bool is_far = workers_[i] != nullptr && workers_[i]->kind == WorkerKind::kRegion;
    near[i].usable = near[i].usable && !is_far;
  }
  const std::optional<size_t> other = choose_by_cost(request, near, draw, nullptr);
  if (!other) return chosen;
  const double far_s = cost_of(request, all[*chosen]).total_s;
  const double near_s = cost_of(request, all[*other]).total_s;
  return is_sooner(far_s, near_s) ? chosen : other;
}

// Though there is room here: those that are four times as slow as another region's, with nothing to
// do, are not just busy.
size_t Fleet::away_from_sick(const CostRequest& request, const std::vector<CostCandidate>& all,
                             size_t near, uint64_t draw) const {
  if (workers_[near]->health.load().progress < kKnownSteps) return near;
  std::optional<size_t> far;
  double far_s = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].usable || workers_[i]->kind != WorkerKind::kRegion || !has_room(all[i])) continue;
    const double cost_s = cost_of(request, all[i]).total_s;
    if (far && cost_s >= far_s) continue;
    far = i;
    far_s = cost_s;
  }
  if (!far || !is_sick(request, all[near], all[*far])) return near;
  const double near_s = cost_of(request, all[near]).total_s;
  if (near_s - far_s < kSickS || !is_sooner(far_s, near_s)) return near;
  return base::random_bits(draw, 2) % kStaysOneOf == 0 ? near : *far;
}

}  // namespace pelton::gateway
