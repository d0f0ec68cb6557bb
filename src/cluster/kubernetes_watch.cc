#include "cluster/kubernetes_watch.h"

#include <atomic>
#include <future>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>

#include "cluster/kubernetes_objects.h"
#include "net/url.h"

namespace pelton::cluster {
namespace {

constexpr int kPageObjects = 500;
constexpr int kPagesMax = 100;
constexpr size_t kLineBytesMax = size_t{4} << 20;
constexpr int kWatchSeconds = 290;  // the server ends it then; a request may last five minutes
constexpr int kGone = 410;
constexpr std::chrono::milliseconds kWatchAgain{100};

}  // namespace

KubernetesWatch::KubernetesWatch(Options options, base::Log& log)
    : options_(std::move(options)), log_(log), api_(options_.api), thread_([this] { run(); }) {
  pthread_setname_np(thread_.native_handle(), "pelton-k8s");
}

KubernetesWatch::~KubernetesWatch() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_all();
  thread_.join();
}

bool KubernetesWatch::wait(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return !woken_.wait_for(lock, time, [this] { return stopping_; });
}

void KubernetesWatch::run() {
  while (wait(std::chrono::milliseconds(0))) {
    const Result<void> done = version_.empty() ? list() : watch();
    if (done.ok()) {
      if (!trouble_.empty()) log_.info("kubernetes: the API server answers again");
      trouble_.clear();
      continue;
    }
    if (done.error().message != trouble_) {
      log_.warning(fmt::format("kubernetes: {}: {}; what was found before stays", options_.name,
                               done.error().message));
    }
    trouble_ = done.error().message;
    version_.clear();
    if (!wait(options_.retry)) return;
  }
}

Result<void> KubernetesWatch::list() {
  options_.list_begins();
  std::string next;
  for (int page = 0; page < kPagesMax; ++page) {
    const std::string more = next.empty() ? "" : "&continue=" + net::percent_encode(next);
    TRY_ASSIGN(const KubernetesApi::Answer answer,
               api_.get(fmt::format("{}&limit={}{}", options_.target, kPageObjects, more)));
    if (answer.status != 200) return kubernetes_error(answer);
    TRY_ASSIGN(KubernetesList list, parse_kubernetes_list(answer.body));
    for (const Json& item : list.items) TRY(options_.listed_one(item));
    next = std::move(list.next);
    if (!next.empty()) continue;
    if (list.resource_version.empty()) {
      return Error{ErrorCode::kIo, "the list has no resourceVersion", {}};
    }
    version_ = list.resource_version;
    options_.listed();
    return {};
  }
  return Error{ErrorCode::kIo, "the list has no end", {}};
}

Result<void> KubernetesWatch::watch() {
  TRY_ASSIGN(
      net::HttpCall asked,
      api_.call("GET", fmt::format("{}&watch=1&allowWatchBookmarks=true&timeoutSeconds={}&"
                                   "resourceVersion={}",
                                   options_.target, kWatchSeconds, net::percent_encode(version_))));
  struct State {
    std::promise<Result<void>> done;
    int status = 0;
    std::string lines;
    Result<void> taken;
    std::atomic<bool> is_wrong = false;  // whatever still comes is not wanted
  };
  const auto state = std::make_shared<State>();
  auto done = state->done.get_future();
  net::HttpCallEvents events;
  events.on_head = [state](int status, const net::HttpHeaders&) { state->status = status; };
  events.on_body = [this, state](std::string_view bytes) {
    if (state->status != 200 || !state->taken.ok()) return;
    state->lines += bytes;
    state->taken = take(state->lines);
    state->is_wrong = !state->taken.ok();
  };
  events.on_done = [state](Result<void> result) { state->done.set_value(std::move(result)); };
  const net::HttpClient::CallId id = api_.client().start(std::move(asked), std::move(events));
  // Ends with the server's time, with an error, or with us.
  while (done.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready) {
    if (state->is_wrong || !wait(std::chrono::milliseconds(0))) api_.client().cancel(id);
  }
  const Result<void> result = done.get();
  if (state->status == kGone) {
    version_.clear();
    return {};
  }
  if (state->status == 0) return result;
  if (state->status != 200) return kubernetes_error({.status = state->status, .body = {}});
  TRY(state->taken);
  // One that was cut off goes on from its last event.
  wait(kWatchAgain);
  return {};
}

Result<void> KubernetesWatch::take(std::string& lines) {
  for (size_t end = lines.find('\n'); end != std::string::npos; end = lines.find('\n')) {
    const std::string line = lines.substr(0, end);
    lines.erase(0, end + 1);
    TRY_ASSIGN(const KubernetesEvent event, parse_kubernetes_event(line));
    if (event.kind == KubernetesEvent::Kind::kExpired) {
      version_.clear();
      return {};
    }
    if (!event.resource_version.empty()) version_ = event.resource_version;
    if (event.kind == KubernetesEvent::Kind::kBookmark) continue;
    TRY(options_.changed(event.kind == KubernetesEvent::Kind::kDeleted ? Options::Kind::kDeleted
                                                                       : Options::Kind::kPut,
                         event.object));
  }
  if (lines.size() <= kLineBytesMax) return {};
  return Error{ErrorCode::kIo, "a line of the watch is longer than 4 MiB", {}};
}

}  // namespace pelton::cluster
