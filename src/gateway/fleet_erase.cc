// The part of gateway::Fleet that has workers forget what they have computed, or all that they keep
// of a tenant.
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "gateway/fleet.h"
#include "net/url.h"

namespace pelton::gateway {
namespace {

constexpr std::chrono::milliseconds kAnswerMax{4'000};
constexpr std::chrono::milliseconds kErasedMax{60'000};  // of files that are many

// Of the calls that are made together.
struct Waited {
  std::mutex mutex;
  size_t open = 0;
  Fleet::Erased erased;
  std::function<void(const Fleet::Erased&)> done;
};

}  // namespace

void Fleet::erase(EraseWhat what, const std::optional<std::string>& tenant,
                  std::function<void(const Erased&)> done) {
  const bool is_all = what == EraseWhat::kKept;
  std::string target = is_all ? "/fleet/v1/erase_tenant" : "/fleet/v1/reset_prefix_cache";
  if (tenant) target += "?tenant=" + net::percent_encode(*tenant);
  std::vector<std::pair<std::string, net::HttpCall>> calls;
  std::set<std::string> regions;  // which are asked by nobody from here
  {
    std::lock_guard lock(mutex_);
    for (const std::unique_ptr<Worker>& worker : workers_) {
      if (worker == nullptr) continue;
      if (worker->kind == WorkerKind::kRegion) {
        regions.insert("region " + worker->config.region);
      }
      if (worker->is_foreign) continue;
      calls.emplace_back(worker->shown, call_to(*worker, "POST", target));
    }
  }
  const auto waited = std::make_shared<Waited>();
  waited->erased.failed.assign(regions.begin(), regions.end());
  if (calls.empty()) return done(waited->erased);
  waited->open = calls.size();
  waited->done = std::move(done);
  for (auto& [name, call] : calls) {
    call.whole_time_max = is_all ? kErasedMax : kAnswerMax;
    call.repeatable = true;
    const auto status = std::make_shared<int>(0);
    net::HttpCallEvents events;
    events.on_head = [status](int got, const net::HttpHeaders&) { *status = got; };
    events.on_body = [](std::string_view) {};
    events.on_done = [waited, status, name = name](const Result<void>& result) {
      const bool is_done = result.ok() && *status == 200;
      {
        std::lock_guard lock(waited->mutex);
        if (is_done) ++waited->erased.workers;
        if (!is_done) waited->erased.failed.push_back(name);
        if (--waited->open > 0) return;
      }
      waited->done(waited->erased);
    };
    client_.start(std::move(call), std::move(events));
  }
}

}  // namespace pelton::gateway
