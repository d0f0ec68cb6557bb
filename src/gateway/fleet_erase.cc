// The part of gateway::Fleet that has workers forget what they have computed, or all that they keep
// of a tenant.
#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "gateway/fleet.h"
#include "net/url.h"

namespace pelton::gateway {
namespace {

// A worker answers when the running step has ended and its disk is written; of all that is kept,
// when files that may be many are gone, too.
constexpr std::chrono::milliseconds kForgottenMax{20'000};
constexpr std::chrono::milliseconds kErasedMax{60'000};
constexpr size_t kAnswerMax = 4096;  // of what is kept of an answer
constexpr size_t kReasonMax = 300;

// Of the calls that are made together.
struct Waited {
  std::mutex mutex;
  size_t open = 0;
  Fleet::Erased erased;
  std::function<void(const Fleet::Erased&)> done;
};

// Of one worker's call.
struct Answered {
  int status = 0;
  std::string body;  // its beginning
};

// What the worker says, or why it says nothing.
std::string why_not_erased(const Result<void>& result, const Answered& answered) {
  if (!result.ok()) return result.error().message;
  const Result<Json> body = Json::parse(answered.body);
  const Json* const error = body.ok() ? body->find("error") : nullptr;
  std::string reason = error == nullptr ? "" : error->string("message").value_or("");
  if (reason.size() > kReasonMax) reason.clear();
  return reason.empty() ? fmt::format("it answers {}", answered.status) : reason;
}

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
  for (const std::string& region : regions) {
    waited->erased.failed.push_back({.name = region, .reason = "ask its own gateway"});
  }
  if (calls.empty()) return done(waited->erased);
  waited->open = calls.size();
  waited->done = std::move(done);
  for (auto& [name, call] : calls) {
    call.whole_time_max = is_all ? kErasedMax : kForgottenMax;
    call.repeatable = true;
    const auto answered = std::make_shared<Answered>();
    net::HttpCallEvents events;
    events.on_head = [answered](int got, const net::HttpHeaders&) { answered->status = got; };
    events.on_body = [answered](std::string_view bytes) {
      answered->body += bytes.substr(0, kAnswerMax - std::min(kAnswerMax, answered->body.size()));
    };
    events.on_done = [waited, answered, name = name](const Result<void>& result) {
      const bool is_done = result.ok() && answered->status == 200;
      {
        std::lock_guard lock(waited->mutex);
        if (is_done) ++waited->erased.workers;
        if (!is_done) {
          waited->erased.failed.push_back(
              {.name = name, .reason = why_not_erased(result, *answered)});
        }
        if (--waited->open > 0) return;
      }
      waited->done(waited->erased);
    };
    client_.start(std::move(call), std::move(events));
  }
}

}  // namespace pelton::gateway
