#include "gateway/kubernetes_source.h"

#include <future>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>

#include "base/file.h"
#include "net/url.h"

namespace pelton::gateway {
namespace {

constexpr int kPageSlices = 500;
constexpr int kPagesMax = 100;
constexpr size_t kListBytesMax = size_t{32} << 20;
constexpr size_t kLineBytesMax = size_t{4} << 20;
constexpr std::chrono::seconds kListTime{10};
constexpr int kWatchSeconds = 290;  // the server ends it then; a request may last five minutes
constexpr size_t kTokenBytesMax = size_t{64} << 10;
constexpr int kGone = 410;
constexpr std::chrono::milliseconds kWatchAgain{100};

Error status_error(int status) {
  return {ErrorCode::kIo, fmt::format("the API server answers {}", status), {}};
}

}  // namespace

KubernetesSource::KubernetesSource(Options options, base::Log& log)
    : options_(std::move(options)),
      log_(log),
      client_({.threads = 1, .trust = options_.trust}),
      thread_([this] { run(); }) {
  pthread_setname_np(thread_.native_handle(), "pelton-k8s");
}

KubernetesSource::~KubernetesSource() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_all();
  thread_.join();
}

bool KubernetesSource::wait(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return !woken_.wait_for(lock, time, [this] { return stopping_; });
}

std::vector<WorkerConfig> KubernetesSource::found() const {
  std::lock_guard lock(mutex_);
  std::vector<WorkerConfig> all;
  for (const auto& [name, workers] : slices_) all.insert(all.end(), workers.begin(), workers.end());
  return all;
}

void KubernetesSource::run() {
  while (wait(std::chrono::milliseconds(0))) {
    const Result<void> done = version_.empty() ? list() : watch();
    if (done.ok()) {
      if (!trouble_.empty()) log_.info("kubernetes: the API server answers again");
      trouble_.clear();
      continue;
    }
    if (done.error().message != trouble_) {
      log_.warning(fmt::format("kubernetes: {}/{}: {}; what was found before stays",
                               options_.name_space, options_.service, done.error().message));
    }
    trouble_ = done.error().message;
    version_.clear();
    if (!wait(options_.retry)) return;
  }
}

Result<net::HttpCall> KubernetesSource::call(const std::string& query) const {
  const std::string url =
      fmt::format("{}/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices?labelSelector={}&{}",
                  options_.api, net::percent_encode(options_.name_space),
                  net::percent_encode("kubernetes.io/service-name=" + options_.service), query);
  TRY_ASSIGN(net::HttpCall call, net::make_http_call("GET", url));
  call.headers.add("Accept", "application/json");
  if (options_.token_file.empty()) return call;
  TRY_ASSIGN(std::string token, base::read_file(options_.token_file, kTokenBytesMax));
  while (!token.empty() && (token.back() == '\n' || token.back() == ' ')) token.pop_back();
  call.headers.add("Authorization", "Bearer " + token);
  return call;
}

Result<void> KubernetesSource::list() {
  Slices slices;
  std::string next;
  std::string version;
  for (int page = 0; page < kPagesMax; ++page) {
    const std::string more = next.empty() ? "" : "&continue=" + net::percent_encode(next);
    TRY_ASSIGN(net::HttpCall asked, call(fmt::format("limit={}{}", kPageSlices, more)));
    asked.whole_time_max = kListTime;
    asked.body_bytes_max = kListBytesMax;
    TRY_ASSIGN(const net::HttpResponse answer, net::http_fetch(client_, std::move(asked)));
    if (answer.status != 200) return status_error(answer.status);
    TRY_ASSIGN(SliceList list, parse_slice_list(answer.body, options_.target));
    for (EndpointSlice& slice : list.slices) slices[slice.name] = std::move(slice.workers);
    version = list.resource_version;
    next = std::move(list.next);
    if (!next.empty()) continue;
    if (version.empty()) return Error{ErrorCode::kIo, "the list has no resourceVersion", {}};
    version_ = version;
    put(std::move(slices));
    return {};
  }
  return Error{ErrorCode::kIo, "the list of EndpointSlices has no end", {}};
}

void KubernetesSource::put(Slices slices) {
  {
    std::lock_guard lock(mutex_);
    if (slices_ == slices) return;
    slices_ = std::move(slices);
  }
  options_.changed();
}

Result<void> KubernetesSource::watch() {
  TRY_ASSIGN(net::HttpCall asked,
             call(fmt::format("watch=1&allowWatchBookmarks=true&timeoutSeconds={}&"
                              "resourceVersion={}",
                              kWatchSeconds, net::percent_encode(version_))));
  struct State {
    std::promise<Result<void>> done;
    int status = 0;
    std::string lines;
    Result<void> taken;
  };
  const auto state = std::make_shared<State>();
  auto done = state->done.get_future();
  net::HttpCallEvents events;
  events.on_head = [state](int status, const net::HttpHeaders&) { state->status = status; };
  events.on_body = [this, state](std::string_view bytes) {
    if (state->status != 200 || !state->taken.ok()) return;
    state->lines += bytes;
    state->taken = take(state->lines);
  };
  events.on_done = [state](Result<void> result) { state->done.set_value(std::move(result)); };
  const net::HttpClient::CallId id = client_.start(std::move(asked), std::move(events));
  // Ends with the server's time, with an error, or with us.
  while (done.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready) {
    if (!wait(std::chrono::milliseconds(0))) client_.cancel(id);
  }
  const Result<void> result = done.get();
  if (state->status == kGone) {
    version_.clear();
    return {};
  }
  if (state->status == 0) return result;
  if (state->status != 200) return status_error(state->status);
  TRY(state->taken);
  // One that was cut off goes on from its last event.
  wait(kWatchAgain);
  return {};
}

Result<void> KubernetesSource::take(std::string& lines) {
  for (size_t end = lines.find('\n'); end != std::string::npos; end = lines.find('\n')) {
    const std::string line = lines.substr(0, end);
    lines.erase(0, end + 1);
    TRY_ASSIGN(SliceEvent event, parse_slice_event(line, options_.target));
    if (event.kind == SliceEvent::Kind::kExpired) {
      version_.clear();
      return {};
    }
    if (!event.resource_version.empty()) version_ = event.resource_version;
    if (event.kind == SliceEvent::Kind::kBookmark) continue;
    Slices slices;
    {
      std::lock_guard lock(mutex_);
      slices = slices_;
    }
    if (event.kind == SliceEvent::Kind::kDeleted) {
      slices.erase(event.slice.name);
    } else {
      slices[event.slice.name] = std::move(event.slice.workers);
    }
    put(std::move(slices));
  }
  if (lines.size() <= kLineBytesMax) return {};
  return Error{ErrorCode::kIo, "a line of the watch is longer than 4 MiB", {}};
}

}  // namespace pelton::gateway
