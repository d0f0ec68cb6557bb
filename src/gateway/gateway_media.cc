// The part of gateway::Gateway that takes requests for images and videos: whose videos they are,
// which pool makes some, whether they keep to its limits; and the list of all workers' videos.
#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "api/error.h"
#include "gateway/gateway.h"
#include "gateway/interruption.h"
#include "gateway/video_events.h"
#include "gateway/video_list.h"
#include "net/json_response.h"

namespace pelton::gateway {
namespace {

api::ApiError video_not_found(std::string_view id) {
  return {.status = 404,
          .message = fmt::format("there is no video '{}'", id),
          .type = "invalid_request_error",
          .param = "video_id",
          .code = "not_found"};
}

// Lists on their way from workers. Any thread.
struct Gathering {
  std::mutex mutex;
  size_t waited = 0;  // guarded by mutex, as the next
  bool failed = false;
  std::vector<std::string> bodies;
};

}  // namespace

std::optional<api::ApiError> Gateway::anothers_video(const net::HttpRequest& request,
                                                     const Home& home, const Caller& caller) {
  const bool is_anothers =
      home && !home->tenant.empty() && home->tenant != caller.principal->tenant;
  if (!is_anothers) return std::nullopt;
  return video_not_found(video_of_path(request.path));
}

Result<std::optional<Relay::Request::Media>> Gateway::media_of(const net::HttpRequest& request,
                                                               const PoolConfig& pool) {
  const std::optional<MediaKind> kind = media_kind_of(request);
  if (!kind || !pool.media.any()) return std::optional<Relay::Request::Media>();
  if (!makes(pool.media, *kind)) {
    ++counters_.media.refused;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'{}' makes {}", pool.models.front(),
                             pool.media.images ? "images, no videos" : "videos, no images"),
                 "model"};
  }
  Relay::Request::Media media{
      .kind = *kind,
      .work = {},
      .result_bytes_max = pool.media.result_bytes_max,
      .time_max = std::chrono::milliseconds(static_cast<int64_t>(pool.media.time_max_s * 1e3))};
  if (!makes_media(*kind)) return std::optional(std::move(media));
  Result<MediaWork> work = read_media_work(request, *kind, pool.media);
  if (!work.ok()) {
    ++counters_.media.refused;
    return std::move(work).error();
  }
  media.work = *std::move(work);
  return std::optional(std::move(media));
}

void Gateway::drop_unfit_fallbacks(const GatewayConfig& config, Relay::Request& request) {
  // Of what another pool would say, who goes on with a stream has nothing.
  if (request.resume && request.resume->from) request.fallback.clear();
  const std::optional<MediaKind> kind = media_kind_of(request.http);
  std::erase_if(request.fallback, [&](const std::string& name) {
    const PoolConfig* const pool = pool_named(config, name);
    if (pool == nullptr || (request.uplink && pool->is_foreign())) return true;
    if (!kind || !pool->media.any()) return false;
    if (!makes(pool->media, *kind)) return true;
    return makes_media(*kind) && !read_media_work(request.http, *kind, pool->media).ok();
  });
}

// Those that are there stay, with what waits in them.
void Gateway::set_queues(const GatewayConfig& config) {
  std::lock_guard lock(mutex_);
  for (const PoolConfig& pool : config.pools) {
    if (!pool.media.any() || pool.scaling) continue;
    std::shared_ptr<PoolGate>& queue = queues_[pool.name];
    if (queue == nullptr) {
      queue = std::make_shared<PoolGate>(pool.media.queue, clock_);
    } else {
      queue->set_hold(pool.media.queue);
    }
  }
}

std::shared_ptr<PoolGate> Gateway::gate_for(const Relay::Request& request) const {
  std::lock_guard lock(mutex_);
  if (const auto gate = gates_.find(request.pool); gate != gates_.end()) return gate->second;
  const bool is_made = request.media && request.media->work;
  const auto queue = is_made ? queues_.find(request.pool) : queues_.end();
  return queue == queues_.end() ? nullptr : queue->second;
}

Gateway::Gates Gateway::gates() const {
  std::lock_guard lock(mutex_);
  Gates all = gates_;
  all.insert(queues_.begin(), queues_.end());
  return all;
}

bool Gateway::watch_video(net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange,
                          const Caller& caller) {
  const bool is_here =
      VideoEvents::asked(request) && makes_any(caller.settings->config, MediaKind::kVideoJob);
  if (!is_here) return false;
  VideoEvents::open(std::move(request), exchange,
                    [this](net::HttpRequest turn, const std::shared_ptr<net::Exchange>& answer) {
                      relay_turn(std::move(turn), answer);
                    });
  return true;
}

// Of pools whose videos the asker may have: of his own, where there are keys, as workers do not
// know whose theirs are.
bool Gateway::list_videos(const net::HttpRequest& request,
                          const std::shared_ptr<net::Exchange>& exchange, const Caller& caller,
                          const Asker& asker) {
  const GatewayConfig& config = caller.settings->config;
  const bool is_list = media_kind_of(request) == MediaKind::kVideoList && request.method == "GET";
  if (!is_list || !makes_any(config, MediaKind::kVideo)) return false;
  const Result<VideoQuery> query = read_video_query(request.query);
  const std::string request_id = request_id_of(request);
  if (!query.ok()) {
    exchange->send(error_answer(request.path, api::api_error(query.error()), request_id));
    return true;
  }
  std::vector<net::HttpCall> calls;
  for (const PoolConfig& pool : config.pools) {
    const bool may = pool.media.videos && std::ranges::any_of(pool.models, [&](const auto& model) {
                       return may_use(config, asker, pool, model);
                     });
    if (may) std::ranges::move(fleet_.video_list_calls(pool.name), std::back_inserter(calls));
  }
  const auto shows = [this, tenant = caller.principal->tenant,
                      is_open = config.keys_file.empty()](const std::string& id) {
    const Home home = homes_.find(id);
    return is_open || (home && home->tenant == tenant);
  };
  const auto answer = [exchange, shows, query = *query, path = request.path,
                       request_id](const Gathering& all) {
    Result<std::string> body = video_list_body(all.bodies, query, shows);
    if (!all.failed && body.ok()) return exchange->send(net::json_response(*std::move(body)));
    exchange->send(error_answer(path,
                                {.status = 502,
                                 .message = "a worker did not say which videos it has",
                                 .type = "server_error",
                                 .param = {},
                                 .code = "worker_failed"},
                                request_id));
  };
  const auto all = std::make_shared<Gathering>();
  all->waited = calls.size();
  if (calls.empty()) {
    answer(*all);
    return true;
  }
  for (net::HttpCall& call : calls) {
    const auto one = std::make_shared<std::pair<int, std::string>>();
    net::HttpCallEvents events;
    events.on_head = [one](int status, const net::HttpHeaders&) { one->first = status; };
    events.on_body = [one](std::string_view bytes) { one->second += bytes; };
    events.on_done = [one, all, exchange, answer](const Result<void>& result) {
      std::lock_guard lock(all->mutex);
      all->failed = all->failed || !result.ok() || one->first != 200;
      all->bodies.push_back(std::move(one->second));
      if (--all->waited == 0) exchange->post([all, answer] { answer(*all); });
    };
    client_.start(std::move(call), std::move(events));
  }
  return true;
}

}  // namespace pelton::gateway
