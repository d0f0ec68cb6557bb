// The part of gateway::Fleet that knows what its workers make of images and videos: by what it was
// sent and is not made yet, and by what such work took there. A video is made after its request has
// been answered, so its worker is asked what has become of it.
#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "gateway/fleet.h"
#include "net/url.h"

namespace pelton::gateway {
namespace {

constexpr int64_t kAskAgainNs = 500'000'000;
// What nobody says the end of by then counts no more.
constexpr int64_t kForgottenNs = int64_t{24} * 3600 * 1'000'000'000;
constexpr size_t kVideosMax = 1024;  // under way at a worker
constexpr size_t kStateBytesMax = size_t{1} << 20;
constexpr size_t kListBytesMax = size_t{4} << 20;
constexpr double kNewestShare = 0.3;  // of the newest in what a unit takes
// Until one was made anywhere in the pool; only ratios of it matter then.
constexpr double kUnknownUnitS = 1e-3;

struct Answer {
  int status = 0;
  std::string body;
};

void note_unit(double& unit_s, double seconds, int64_t units) {
  if (!(seconds > 0) || units < 1) return;
  const double measured = seconds / static_cast<double>(units);
  unit_s = unit_s > 0 ? unit_s + kNewestShare * (measured - unit_s) : measured;
}

}  // namespace

bool Fleet::makes_media(const Worker& worker) const {
  const PoolConfig* const pool = find_pool(worker.config.pool);
  return pool != nullptr && pool->media.any();
}

// Who asks after a video, or gets one, takes none of those for what is made.
Fleet::Slots Fleet::slots_of(const Worker& worker) const {
  const PoolConfig* const pool = find_pool(worker.config.pool);
  if (pool == nullptr || !pool->media.any()) {
    return {.all = std::max(worker.record.slots, 1), .taken = worker.open};
  }
  const size_t made = worker.making.images.size() + worker.making.videos.size();
  return {.all = pool->media.at_once, .taken = static_cast<int>(made)};
}

bool Fleet::is_full_of(std::string_view pool, std::string_view model) const {
  std::lock_guard lock(mutex_);
  const int64_t now_ns = clock_.now_ns();
  return std::ranges::any_of(workers_, [&](const std::unique_ptr<Worker>& worker) {
    return worker != nullptr && worker->kind != WorkerKind::kRegion &&
           serves(*worker, pool, model, now_ns) && slots_of(*worker).free() == 0;
  });
}

int64_t Fleet::units_open(const Worker& worker) {
  double units = 0;
  for (const auto& [dispatch, its] : worker.making.images) units += static_cast<double>(its);
  for (const Worker::Video& video : worker.making.videos) {
    units += static_cast<double>(video.units) * (1 - video.progress);
  }
  return static_cast<int64_t>(units);
}

// A worker makes one after the other, or several at once and each the slower: either way what was
// sent before comes first, and whatever comes later waits for this one.
void Fleet::price_media(const Worker& worker, const Wanted& wanted, CostCandidate& one) const {
  const PoolConfig* const pool = find_pool(worker.config.pool);
  if (pool == nullptr) return;
  double unit_s = worker.making.unit_s;
  if (unit_s == 0) {
    int measured = 0;
    for (const std::unique_ptr<Worker>& other : workers_) {
      if (other == nullptr || other->config.pool != pool->name || other->making.unit_s == 0) {
        continue;
      }
      unit_s += other->making.unit_s;
      ++measured;
    }
    unit_s = measured > 0 ? unit_s / measured : kUnknownUnitS;
  }
  one.costs = {.fixed_s = 0, .prefill_token_s = unit_s};
  one.rows = one.uncounted = 0;
  one.uncounted_tokens = one.hit_tokens = 0;
  one.waiting_tokens = units_open(worker);
  one.waiting = static_cast<int>(worker.making.images.size() + worker.making.videos.size());
  one.bias = one.rest_bias = 1;
  one.prompt_share = one.pushed_out_s = 0;
  const MediaWork& work = *wanted.media;
  const bool is_resident =
      work.lora.empty() || std::ranges::binary_search(worker.adapters, work.lora) ||
      std::ranges::find(worker.making.loras, work.lora) != worker.making.loras.end();
  one.adapter_s = is_resident ? 0 : pool->media.lora_load_s;
  one.usable = one.usable && (wanted.has_home || slots_of(worker).free() > 0);
}

void Fleet::note_media_sent(Worker& worker, const MediaWork& work, Assignment& assignment) const {
  assignment.media_units = work.units;
  assignment.media_units_ahead = units_open(worker);
  worker.making.images[assignment.dispatch] = work.units;
  const PoolConfig* const pool = find_pool(worker.config.pool);
  if (work.lora.empty() || pool == nullptr) return;
  std::erase(worker.making.loras, work.lora);
  worker.making.loras.push_back(work.lora);
  while (std::ssize(worker.making.loras) > pool->media.lora_places) {
    worker.making.loras.pop_front();
  }
}

void Fleet::note_made(const Assignment& assignment, double seconds) {
  std::lock_guard lock(mutex_);
  Worker* const worker = at({.index = assignment.worker, .serial = assignment.serial});
  if (worker == nullptr) return;
  note_unit(worker->making.unit_s, seconds, assignment.media_units + assignment.media_units_ahead);
}

// What its request was counts for it from now on.
void Fleet::begin_video(const Assignment& assignment, const std::string& id) {
  std::lock_guard lock(mutex_);
  Worker* const worker = at({.index = assignment.worker, .serial = assignment.serial});
  if (worker == nullptr) return;
  worker->making.images.erase(assignment.dispatch);
  std::deque<Worker::Video>& videos = worker->making.videos;
  if (videos.size() == kVideosMax) videos.pop_front();
  videos.push_back({.id = id,
                    .units = assignment.media_units,
                    .units_ahead = assignment.media_units_ahead,
                    .begun_ns = clock_.now_ns()});
}

// `made_ns`: when it was; none: it never will be.
void Fleet::end_video(Worker& worker, std::deque<Worker::Video>::iterator video,
                      std::optional<int64_t> made_ns) {
  if (made_ns) {
    note_unit(worker.making.unit_s, static_cast<double>(*made_ns - video->begun_ns) * 1e-9,
              video->units + video->units_ahead);
  }
  worker.making.videos.erase(video);
}

void Fleet::note_video(const Assignment& assignment, const VideoState& state) {
  std::lock_guard lock(mutex_);
  Worker* const worker = at({.index = assignment.worker, .serial = assignment.serial});
  if (worker == nullptr) return;
  const auto video = std::ranges::find(worker->making.videos, state.id, &Worker::Video::id);
  if (video == worker->making.videos.end()) return;
  if (state.phase == VideoState::Phase::kUnderWay) {
    video->progress = state.progress;
    return;
  }
  const bool is_made = state.phase == VideoState::Phase::kDone;
  end_video(*worker, video, is_made ? std::optional(clock_.now_ns()) : std::nullopt);
}

void Fleet::forget_video(const Assignment& assignment, std::string_view id) {
  std::lock_guard lock(mutex_);
  Worker* const worker = at({.index = assignment.worker, .serial = assignment.serial});
  if (worker == nullptr) return;
  const auto video = std::ranges::find(worker->making.videos, id, &Worker::Video::id);
  if (video != worker->making.videos.end()) end_video(*worker, video, std::nullopt);
}

// One after the other, so that a worker with many is not asked more often.
void Fleet::ask_video(Worker& worker, const Place& place, int64_t now_ns) {
  std::deque<Worker::Video>& videos = worker.making.videos;
  if (videos.empty() || worker.making.asking || now_ns < worker.making.ask_again_ns) return;
  std::rotate(videos.begin(), videos.begin() + 1, videos.end());
  const std::string id = videos.back().id;
  if (now_ns - videos.back().begun_ns > kForgottenNs) return videos.pop_back();
  worker.making.asking = true;
  net::HttpCall call = foreign_call(worker, "GET", "/v1/videos/" + net::percent_encode(id));
  call.body_bytes_max = kStateBytesMax;
  const auto answer = std::make_shared<Answer>();
  net::HttpCallEvents events;
  events.on_head = [answer](int status, const net::HttpHeaders&) { answer->status = status; };
  events.on_body = [answer](std::string_view bytes) { answer->body += bytes; };
  events.on_done = [this, place, id, answer](const Result<void>& result) {
    on_video(place, id, result.ok() ? answer->status : 0, answer->body);
  };
  client_.start(std::move(call), std::move(events));
}

void Fleet::on_video(const Place& place, const std::string& id, int status, std::string_view body) {
  std::optional<VideoState> state = status == 200 ? video_state(body) : std::nullopt;
  if (status == 404) state = VideoState{.id = id, .phase = VideoState::Phase::kFailed};
  {
    std::lock_guard lock(mutex_);
    Worker* const worker = at(place);
    if (worker == nullptr) return;
    worker->making.asking = false;
    worker->making.ask_again_ns = clock_.now_ns() + kAskAgainNs;
  }
  if (!state) return;
  state->id = id;
  note_video({.worker = place.index, .serial = place.serial}, *state);
}

std::vector<net::HttpCall> Fleet::video_list_calls(std::string_view pool) const {
  std::lock_guard lock(mutex_);
  const int64_t now_ns = clock_.now_ns();
  std::vector<net::HttpCall> calls;
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker == nullptr || worker->kind == WorkerKind::kRegion) continue;
    if (!serves(*worker, pool, "", now_ns)) continue;
    net::HttpCall& call = calls.emplace_back(foreign_call(*worker, "GET", "/v1/videos?limit=100"));
    call.body_bytes_max = kListBytesMax;
  }
  return calls;
}

std::optional<Fleet::Row::Making> Fleet::making_of(const Worker& worker) const {
  if (!makes_media(worker)) return std::nullopt;
  return Row::Making{.images = static_cast<int>(worker.making.images.size()),
                     .videos = static_cast<int>(worker.making.videos.size()),
                     .units = units_open(worker),
                     .unit_s = worker.making.unit_s,
                     .loras = {worker.making.loras.begin(), worker.making.loras.end()}};
}

}  // namespace pelton::gateway
