// The part of gateway::Fleet that has workers forget what they have computed.
#include <condition_variable>
#include <memory>
#include <utility>

#include "gateway/fleet.h"
#include "net/url.h"

namespace pelton::gateway {
namespace {

constexpr std::chrono::milliseconds kAnswerMax{4'000};

// Of the calls that are made together.
struct Waited {
  std::mutex mutex;
  std::condition_variable changed;
  size_t open = 0;
  int done = 0;
  std::vector<std::string> failed;
};

}  // namespace

Fleet::Erased Fleet::erase(const std::optional<std::string>& tenant) {
  std::string target = "/fleet/v1/reset_prefix_cache";
  if (tenant) target += "?tenant=" + net::percent_encode(*tenant);
  std::vector<std::pair<std::string, net::HttpCall>> calls;
  {
    std::lock_guard lock(mutex_);
    for (const std::unique_ptr<Worker>& worker : workers_) {
      if (worker == nullptr || worker->is_foreign) continue;
      calls.emplace_back(worker->shown, call_to(*worker, "POST", target));
    }
  }
  const auto waited = std::make_shared<Waited>();
  waited->open = calls.size();
  for (auto& [name, call] : calls) {
    call.whole_time_max = kAnswerMax;
    call.repeatable = true;
    const auto status = std::make_shared<int>(0);
    net::HttpCallEvents events;
    events.on_head = [status](int got, const net::HttpHeaders&) { *status = got; };
    events.on_body = [](std::string_view) {};
    events.on_done = [waited, status, name = name](const Result<void>& result) {
      std::lock_guard lock(waited->mutex);
      const bool is_done = result.ok() && *status == 200;
      if (is_done) ++waited->done;
      if (!is_done) waited->failed.push_back(name);
      --waited->open;
      waited->changed.notify_all();
    };
    client_.start(std::move(call), std::move(events));
  }
  std::unique_lock lock(waited->mutex);
  waited->changed.wait(lock, [&] { return waited->open == 0; });
  return {.workers = waited->done, .failed = waited->failed};
}

}  // namespace pelton::gateway
