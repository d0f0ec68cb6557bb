#include "gateway/fleet.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "gateway/probe.h"
#include "net/url.h"

namespace pelton::gateway {
namespace {

using cluster::Frame;
using cluster::FrameType;
using cluster::WorkerState;

constexpr std::chrono::milliseconds kTurn{50};
// Between two looks at the clock. What is beyond that this process was stopped for, and not the
// workers: the thread that tends them looks more often.
constexpr std::chrono::milliseconds kGapMax{200};
constexpr int kTurnsToVerify = 4;
constexpr size_t kWorkersMax = 4095;
constexpr size_t kLeavingMax = 16;  // of one worker at one turn
constexpr int64_t kWatchAgainNs = 200'000'000;
constexpr int64_t kProbeAgainNs = 1'000'000'000;
constexpr std::chrono::milliseconds kConnectTime{1'000};
constexpr std::chrono::milliseconds kWatchQuiet{3'000};
constexpr std::chrono::milliseconds kProbeTime{2'000};
constexpr std::chrono::milliseconds kReleaseTime{2'000};

// What is amiss with the worker's list of models, as it answers clients; empty: it has what its
// record says.
std::string trouble_of_list(std::string_view body, const std::vector<std::string>& models) {
  const Result<Json> json = Json::parse(body);
  const Json* data = json.ok() ? json->find("data") : nullptr;
  if (data == nullptr || !data->is_array()) return "its probe: /v1/models is no list of models";
  if (models.empty()) return "it has no model";
  for (const std::string& model : models) {
    const bool is_listed = std::ranges::any_of(data->as_array(), [&](const Json& card) {
      return card.string("id") == std::optional(model);
    });
    if (!is_listed) return fmt::format("its probe: /v1/models lacks its model '{}'", model);
  }
  return "";
}

// Empty: the probe has passed.
std::string trouble_of(const Probe& probe, const Result<void>& result,
                       const std::vector<std::string>& models) {
  if (!result.ok()) return "its probe: " + result.error().message;
  if (!probe.is_whole()) return "its probe: half an answer";
  if (probe.status != 200) return fmt::format("its probe: /v1/models answers {}", probe.status);
  return trouble_of_list(probe.body, models);
}

std::string ejection_text(const cluster::WorkerHealth::Ejection& ejection) {
  using Cause = cluster::WorkerHealth::Cause;
  if (ejection.cause == Cause::kInARow)
    return fmt::format("{} failures in a row", ejection.failures);
  if (ejection.cause != Cause::kShare) return "by an operator";
  return fmt::format("it failed {} of {} requests in ten seconds", ejection.failures,
                     ejection.requests);
}

}  // namespace

Fleet::Fleet(Options options, const base::Clock& clock, base::Log& log)
    : options_(std::move(options)),
      clock_(clock, kGapMax),
      log_(log),
      hasher_(options_.block_seed ? std::optional<kv::BlockHasher>(*options_.block_seed)
                                  : std::nullopt),
      blocks_(options_.index_bytes),
      client_({.threads = 1, .trust = options_.trust}),
      ticker_({.name = "pelton-fleet", .interval = kTurn}, [this] { turn(); }) {}

void Fleet::set_members(std::vector<PoolConfig> pools, const std::vector<WorkerConfig>& workers,
                        ZoneConfig zones) {
  std::lock_guard lock(mutex_);
  zones_ = std::move(zones);
  pools_ = std::move(pools);
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker != nullptr) worker->leaves = true;
  }
  for (const WorkerConfig& config : workers) {
    const auto pool = std::ranges::find(pools_, config.pool, &PoolConfig::name);
    const bool is_region = !config.region.empty();
    const bool is_foreign = is_region || (pool != pools_.end() && pool->is_foreign());
    const PoolConfig* const its_pool = pool == pools_.end() ? nullptr : &*pool;
    const auto is_this = [&](const std::unique_ptr<Worker>& worker) {
      return worker != nullptr && worker->config.host == config.host &&
             worker->config.port == config.port && worker->is_foreign == is_foreign &&
             worker->config.region == config.region &&
             (!is_region || worker->config.pool == config.pool);
    };
    auto place = std::ranges::find_if(workers_, is_this);
    if (place != workers_.end()) {
      (*place)->config = config;
      (*place)->leaves = false;
      set_foreign(static_cast<size_t>(place - workers_.begin()), **place, its_pool);
      continue;
    }
    place = std::ranges::find_if(workers_, [](const auto& one) { return one == nullptr; });
    if (place == workers_.end() && workers_.size() == kWorkersMax) break;
    if (place == workers_.end()) place = workers_.emplace(place);
    *place = std::make_unique<Worker>();
    (*place)->config = config;
    (*place)->is_foreign = is_foreign;
    set_foreign(static_cast<size_t>(place - workers_.begin()), **place, its_pool);
    (*place)->serial = ++serials_;
    // One region has a worker in each pool.
    (*place)->shown = is_region ? fmt::format("region-{}.{}", config.region, config.pool)
                                : net::format_host_port(config.host, config.port);
  }
  for (const PoolConfig& pool : pools_) verify(pool.name, clock_.now_ns());
}

Fleet::Worker* Fleet::at(const Place& place) {
  Worker* worker = place.index < workers_.size() ? workers_[place.index].get() : nullptr;
  return worker != nullptr && worker->serial == place.serial ? worker : nullptr;
}

net::HttpCall Fleet::call_to(const Worker& worker, std::string method, std::string target) const {
  net::HttpCall call{.method = std::move(method),
                     .host = worker.config.host,
                     .port = worker.config.port,
                     .tls = options_.trust != nullptr,
                     .target = std::move(target),
                     .repeatable = true,
                     .connect_time_max = kConnectTime};
  call.headers.add("x-pelton-gateway", options_.gateway);
  return call;
}

void Fleet::turn() {
  std::vector<Listening> lost;
  std::vector<Listening> leaving;
  std::vector<std::unique_ptr<cluster::VllmSubscriber>> retired;
  {
    std::lock_guard lock(mutex_);
    const int64_t now_ns = clock_.now_ns();
    if (++turns_ % kTurnsToVerify == 0) {
      for (const PoolConfig& pool : pools_) {
        verify(pool.name, now_ns);
        eject_slow(pool.name, now_ns);
      }
    }
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (workers_[i] == nullptr) continue;
      Worker& worker = *workers_[i];
      tend(worker, {.index = i, .serial = worker.serial}, now_ns);
      take_role(worker);
      count_ejections(worker);
      for (Listening& one : note_state(worker, now_ns)) lost.push_back(std::move(one));
      for (Listening& one : take_leaving(worker, now_ns)) leaving.push_back(std::move(one));
      if (!worker.leaves || worker.open > 0) continue;
      log_.info(fmt::format("worker {} is taken out", worker.shown));
      if (worker.watch) client_.cancel(*worker.watch);
      blocks_.forget(static_cast<int>(i));
      retire(i, worker);
      workers_[i].reset();
    }
    blocks_.sweep();
    retired.swap(retired_);
  }
  for (const Listening& one : lost) {
    if (const auto listener = one.listener.lock()) listener->on_worker_lost(one.attempt);
  }
  for (const Listening& one : leaving) {
    if (const auto listener = one.listener.lock()) listener->on_worker_leaving(one.attempt);
  }
}

// Is it time to watch or to probe it?
void Fleet::tend(Worker& worker, const Place& place, int64_t now_ns) {
  const bool is_asked = worker.kind != WorkerKind::kRegion;  // of those region_watch hears
  if (is_asked && !worker.watch && now_ns >= worker.watch_again_ns) {
    worker.is_foreign ? poll(worker, place) : watch(worker, place);
  }
  const bool probes = !worker.is_foreign && worker.health.state(now_ns) == WorkerState::kProbing &&
                      worker.health.load().ready && !worker.probing &&
                      now_ns >= worker.probe_again_ns;
  if (probes) probe(worker, place);
  ask_video(worker, place, now_ns);
  test_names(worker, place, now_ns);
  end_name_test(worker, place, now_ns);
}

// Says in the log what has changed; gives back those who have to hear of it.
std::vector<Fleet::Listening> Fleet::note_state(Worker& worker, int64_t now_ns) {
  const WorkerState state = worker.health.state(now_ns);
  std::erase_if(worker.listening, [](const Listening& one) { return one.listener.expired(); });
  std::string why = worker.trouble.empty() ? missing_model(worker) : worker.trouble;
  if (state == WorkerState::kUnverified) why = worker.mismatch;
  const bool is_out = state == WorkerState::kSuspect || state == WorkerState::kDown;
  if (is_out && worker.trouble.empty()) {
    why = worker.health.is_hung() ? "its step does not end" : "it is silent";
  }
  std::string line = std::string(worker_state_name(state));
  if (!why.empty()) line += ": " + why;
  if (line != worker.logged) {
    const std::string text = fmt::format("worker {} is {}", worker.shown, line);
    const bool is_bad = state == WorkerState::kDown || !why.empty();
    is_bad ? log_.warning(text) : log_.info(text);
    worker.logged = std::move(line);
  }
  // Of another region only its summary is missing: what runs there says by itself how it goes.
  if (state != WorkerState::kDown || worker.kind == WorkerKind::kRegion) return {};
  return std::exchange(worker.listening, {});
}

// Those who go on elsewhere are computed anew there, so they come a few at a time; who cannot leave
// yet asks again behind the others.
std::vector<Fleet::Listening> Fleet::take_leaving(Worker& worker, int64_t now_ns) {
  const bool says_so =
      worker.health.state(now_ns) == WorkerState::kDraining && worker.health.load().draining;
  if (worker.is_foreign || !(says_so || worker.config.draining || worker.gives_up_answers)) {
    return {};
  }
  const size_t count = std::min(kLeavingMax, worker.listening.size());
  const auto end = worker.listening.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<Listening> taken(worker.listening.begin(), end);
  std::rotate(worker.listening.begin(), end, worker.listening.end());
  return taken;
}

std::string Fleet::reason_of(const Worker& worker, int64_t now_ns) const {
  const auto seconds = [](int64_t ns) { return static_cast<double>(ns) * 1e-9; };
  const cluster::WorkerHealth& health = worker.health;
  if (worker.leaves) return "it has been taken out of the configuration";
  switch (health.state(now_ns)) {
    case WorkerState::kReady: {
      if (worker.config.draining) return "whoever found it says that it is being stopped";
      std::string missing = missing_model(worker);
      return missing.empty() ? role_trouble(worker, now_ns) : missing;
    }
    case WorkerState::kUnverified:
      return worker.mismatch;
    case WorkerState::kEjected:
      return health.ejection().cause == cluster::WorkerHealth::Cause::kSlow
                 ? worker.slow_text
                 : ejection_text(health.ejection());
    case WorkerState::kDraining:
      return health.load().draining ? "it says so itself" : "by an operator";
    case WorkerState::kJoining:
      return worker.trouble.empty() ? "it has not said who it is yet" : worker.trouble;
    case WorkerState::kProbing:
      if (!worker.trouble.empty()) return worker.trouble;
      return health.load().ready ? "its probe is on its way" : "it is not ready itself";
    case WorkerState::kSuspect:
    case WorkerState::kDown:
      break;
  }
  if (!worker.trouble.empty()) return worker.trouble;
  if (health.is_hung()) return fmt::format("no progress for {:.1f} s", seconds(health.stuck_ns()));
  return fmt::format("no report for {:.1f} s", seconds(health.report_age_ns(now_ns)));
}

void Fleet::watch(Worker& worker, const Place& place) {
  worker.reader = cluster::FrameReader(size_t{1} << 20);
  worker.recorded = false;
  net::HttpCall call = call_to(worker, "GET", "/fleet/v1/watch");
  call.head_time_max = kWatchQuiet;
  call.quiet_time_max = kWatchQuiet;
  net::HttpCallEvents events;
  const auto status = std::make_shared<std::atomic<int>>(0);
  events.on_head = [status](int got, const net::HttpHeaders&) { *status = got; };
  events.on_body = [this, place](std::string_view bytes) { on_watch_bytes(place, bytes); };
  events.on_done = [this, place, status](const Result<void>& result) {
    if (!result.ok()) return on_watch_done(place, result);
    on_watch_done(place,
                  Error{ErrorCode::kIo, *status == 200 ? "it ended its watch"
                                                       : fmt::format("no fleet port of a worker: "
                                                                     "/fleet/v1/watch answers {}",
                                                                     status->load())});
  };
  worker.watch = client_.start(std::move(call), std::move(events));
}

void Fleet::on_watch_bytes(const Place& place, std::string_view bytes) {
  std::lock_guard lock(mutex_);
  Worker* worker = at(place);
  if (worker == nullptr || !worker->watch) return;
  worker->reader.push(bytes);
  const Result<void> read = read_watch(place.index, *worker, clock_.now_ns());
  if (read.ok()) return;
  // Nothing can follow; what it says when it is asked again is another matter.
  worker->trouble = "its watch: " + read.error().message;
  client_.cancel(*worker->watch);
}

Result<void> Fleet::read_watch(size_t index, Worker& worker, int64_t now_ns) {
  for (;;) {
    TRY_ASSIGN(const std::optional<Frame> frame, worker.reader.next());
    if (!frame) return {};
    if (frame->type == FrameType::kRecord) {
      const std::string before = worker.record.incarnation;
      TRY(note_record(worker, frame->payload, now_ns));
      // What another start of it held is gone (RB-02).
      if (worker.record.incarnation != before) blocks_.forget(static_cast<int>(index));
    }
    if (frame->type == FrameType::kBlocks) TRY(note_blocks(index, worker, frame->payload));
    if (frame->type != FrameType::kLoad) continue;
    TRY_ASSIGN(const cluster::WorkerLoad load, cluster::decode_worker_load(frame->payload));
    worker.health.note_load(load, now_ns);
    worker.over_since_report = 0;
    forget_counted(worker, now_ns);
  }
}

// A worker's own word for itself. It stands in lines of the log and in paths, and is what operators
// command it by, so it is plain and nobody else's; otherwise what it was called before
// stays, at first its address.
bool Fleet::may_be_shown(const Worker& worker, std::string_view name) const {
  constexpr size_t kNameBytesMax = 128;
  const auto is_plain = [](char c) { return c > ' ' && c <= '~' && c != '/' && c != '%'; };
  if (name.empty() || name.size() > kNameBytesMax || name == "." || name == ".." ||
      !std::ranges::all_of(name, is_plain)) {
    return false;
  }
  return std::ranges::none_of(workers_, [&](const std::unique_ptr<Worker>& other) {
    return other != nullptr && other.get() != &worker && other->shown == name;
  });
}

// One that is down gives its name to who has it now: it was started anew at another address.
void Fleet::take_name(Worker& worker, int64_t now_ns) {
  const std::string& name = worker.record.name;
  for (const std::unique_ptr<Worker>& other : workers_) {
    if (other == nullptr || other.get() == &worker || other->shown != name) continue;
    if (other->health.state(now_ns) != WorkerState::kDown) continue;
    other->shown = net::format_host_port(other->config.host, other->config.port);
  }
  if (may_be_shown(worker, name)) worker.shown = name;
}

Result<void> Fleet::note_record(Worker& worker, std::string_view payload, int64_t now_ns) {
  TRY_ASSIGN(cluster::WorkerRecord record, cluster::decode_worker_record(payload));
  const auto news = worker.health.note_record(record, now_ns);
  worker.adapters = std::exchange(record.adapters, {});
  std::ranges::sort(worker.adapters);
  worker.record = std::move(record);
  worker.recorded = true;
  take_name(worker, now_ns);
  worker.trouble.clear();
  const int block_tokens = worker.record.block_tokens;
  worker.names_agree =
      options_.block_seed && block_tokens > 0 &&
      worker.record.block_name == cluster::block_name_check(*options_.block_seed, block_tokens);
  worker.groups = cluster::routed_groups(worker.record.windows, std::max(block_tokens, 1));
  verify(worker.config.pool, now_ns);
  if (news == cluster::WorkerHealth::News::kSame) return {};
  worker.begun_ns = now_ns;
  worker.role = worker.record.role;
  worker.next_role.reset();
  worker.over_since_report = 0;
  worker.uncounted.clear();
  worker.expected_adapters.clear();
  worker.first_bias = worker.rest_bias = {};
  worker.delays.clear();
  worker.probe_again_ns = 0;
  worker.name_trust.begin_anew();
  worker.testing_names = false;
  worker.test_prompt.clear();
  return {};
}

void Fleet::on_watch_done(const Place& place, const Result<void>& result) {
  std::lock_guard lock(mutex_);
  Worker* worker = at(place);
  if (worker == nullptr) return;
  const int64_t now_ns = clock_.now_ns();
  const ErrorCode code = result.error().code;
  const bool refused = code == ErrorCode::kUnavailable;
  // Cancelled it was for a reason that is known.
  if (code != ErrorCode::kCancelled) worker->trouble = result.error().message;
  if (options_.trust != nullptr && worker->trouble.starts_with("no TLS with")) {
    worker->trouble += "; its fleet key may be another one";
  }
  worker->watch.reset();
  // At once after a reset: only a refusal means that the worker is gone.
  const bool at_once = worker->recorded && code != ErrorCode::kCancelled;
  worker->watch_again_ns = at_once ? now_ns : now_ns + kWatchAgainNs;
  worker->health.note_watch_lost(refused, now_ns);
}

void Fleet::probe(Worker& worker, const Place& place) {
  worker.probing = true;
  net::HttpCall call = call_to(worker, "POST", "/fleet/v1/run");
  call.whole_time_max = kProbeTime;
  const cluster::RunEnvelope envelope{.incarnation = worker.record.incarnation,
                                      .request_id = "probe",
                                      .gateway = options_.gateway,
                                      .method = "GET",
                                      .path = "/v1/models",
                                      .created_ms = clock_.unix_ms()};
  cluster::append_frame(call.body, {.type = FrameType::kRun, .payload = encode(envelope)});
  const auto probe = std::make_shared<Probe>();
  net::HttpCallEvents events;
  events.on_body = [probe](std::string_view bytes) { probe->push(bytes); };
  events.on_done = [this, place, probe, record = worker.record](const Result<void>& result) {
    on_probed(place, record.incarnation, trouble_of(*probe, result, record.models));
  };
  client_.start(std::move(call), std::move(events));
}

void Fleet::on_probed(const Place& place, const std::string& incarnation,
                      const std::string& trouble) {
  std::string pool;
  {
    std::lock_guard lock(mutex_);
    Worker* worker = at(place);
    if (worker == nullptr) return;
    worker->probing = false;
    worker->probe_again_ns = clock_.now_ns() + kProbeAgainNs;
    if (worker->record.incarnation != incarnation) return;
    worker->health.note_probe(trouble.empty());
    worker->trouble = trouble;
    verify(worker->config.pool, clock_.now_ns());
    if (trouble.empty()) pool = worker->config.pool;
  }
  if (!pool.empty() && options_.on_ready) options_.on_ready(pool);
}

// One of its pool's models that it does not have, as it says itself: requests for that one are not
// sent to it.
std::string Fleet::missing_model(const Worker& worker) const {
  if (worker.record.incarnation.empty()) return "";
  const auto pool = std::ranges::find(pools_, worker.config.pool, &PoolConfig::name);
  if (pool == pools_.end()) return "";
  for (const std::string& model : pool->models) {
    if (has_model(worker, model)) continue;
    return fmt::format("its pool's model '{}' is none of its own: {}", model,
                       fmt::join(worker.record.models, ", "));
  }
  return "";
}

// It serves none of what its pool is asked for.
std::string Fleet::missing_all_models(const Worker& worker) const {
  if (worker.is_foreign || worker.kind == WorkerKind::kRegion) return "";
  if (worker.record.incarnation.empty()) return "";
  const auto pool = std::ranges::find(pools_, worker.config.pool, &PoolConfig::name);
  if (pool == pools_.end() || pool->models.empty()) return "";
  const auto has = [&](const std::string& model) { return has_model(worker, model); };
  if (std::ranges::any_of(pool->models, has)) return "";
  return fmt::format("it serves as '{}', and its pool is asked for '{}'",
                     fmt::join(worker.record.models, "', '"), fmt::join(pool->models, "', '"));
}

bool Fleet::has_model(const Worker& worker, std::string_view model) {
  return model.empty() ||
         std::ranges::find(worker.record.models, model) != worker.record.models.end() ||
         std::ranges::binary_search(worker.adapters, model);
}

bool Fleet::has_adapter(std::string_view pool, std::string_view name) const {
  std::lock_guard lock(mutex_);
  return std::ranges::any_of(workers_, [&](const std::unique_ptr<Worker>& worker) {
    return worker != nullptr && worker->config.pool == pool &&
           std::ranges::binary_search(worker->adapters, name);
  });
}

std::vector<std::string> Fleet::adapters(std::string_view pool) const {
  std::lock_guard lock(mutex_);
  std::set<std::string> all;
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker == nullptr || worker->config.pool != pool) continue;
    all.insert(worker->adapters.begin(), worker->adapters.end());
  }
  return {all.begin(), all.end()};
}

std::string Fleet::adapter_digest(std::string_view pool, std::string_view name) const {
  std::lock_guard lock(mutex_);
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker == nullptr || worker->config.pool != pool) continue;
    const auto& adapters = worker->health.load().adapters;
    const auto found = std::ranges::find(adapters, name, &cluster::ResidentAdapter::name);
    if (found != adapters.end() && !found->digest.empty()) return found->digest;
  }
  return "";
}

std::string Fleet::pool_of(const Assignment& assignment) const {
  std::lock_guard lock(mutex_);
  if (assignment.worker >= workers_.size()) return "";
  const Worker* const worker = workers_[assignment.worker].get();
  return worker != nullptr && worker->serial == assignment.serial ? worker->config.pool : "";
}

bool Fleet::has_pool(std::string_view pool) const {
  std::lock_guard lock(mutex_);
  return find_pool(pool) != nullptr;
}

bool Fleet::has_worker_beside(std::string_view pool, const std::set<size_t>& workers) const {
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < workers_.size(); ++i) {
    const Worker* const worker = workers_[i].get();
    if (worker == nullptr || worker->config.pool != pool || worker->leaves) continue;
    if (worker->kind == WorkerKind::kRegion || !cluster::decodes(worker->role)) continue;
    if (!workers.contains(i)) return true;
  }
  return false;
}

bool Fleet::is_gone(std::string_view host, int port) const {
  std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(workers_, [&](const std::unique_ptr<Worker>& worker) {
    return worker != nullptr && worker->config.host == host && worker->config.port == port;
  });
  if (found == workers_.end()) return true;
  const WorkerState state = (*found)->health.state(clock_.now_ns());
  return state == WorkerState::kDown || state == WorkerState::kJoining;
}

bool Fleet::serves(const Worker& worker, std::string_view pool, std::string_view model,
                   int64_t now_ns) {
  return !worker.leaves && !worker.config.draining && worker.config.pool == pool &&
         has_model(worker, model) && worker.health.takes_requests(now_ns);
}

void Fleet::listen(const Assignment& assignment, std::weak_ptr<WorkerListener> listener,
                   int attempt) {
  std::lock_guard lock(mutex_);
  Worker* worker = at({.index = assignment.worker, .serial = assignment.serial});
  if (worker == nullptr) return;  // it stays while an attempt has no outcome
  worker->listening.push_back({.listener = std::move(listener), .attempt = attempt});
}

void Fleet::note_outcome(const Assignment& assignment, Outcome outcome) {
  std::lock_guard lock(mutex_);
  Worker* worker = at({.index = assignment.worker, .serial = assignment.serial});
  if (worker == nullptr) return;
  --worker->open;
  worker->making.images.erase(assignment.dispatch);
  if (worker->record.incarnation != assignment.incarnation) return;
  // Over between two reports, it is no load any more: none will count it, or the last one did.
  const bool was_uncounted = std::erase_if(worker->uncounted, [&](const auto& one) {
                               return one.dispatch == assignment.dispatch;
                             }) > 0;
  if (!was_uncounted && assignment.dispatch <= worker->health.load().dispatch) {
    ++worker->over_since_report;
  }
  if (outcome == Outcome::kFailed) ++worker->failures;
  const int64_t now_ns = clock_.now_ns();
  const bool is_ejected = worker->health.ejection().cause != cluster::WorkerHealth::Cause::kNone;
  if (outcome == Outcome::kFailed && !is_ejected && is_half_ejected(worker->config.pool)) return;
  worker->health.note_outcome(outcome, assignment.dispatch, now_ns);
  if (outcome == Outcome::kFailed && is_odd_one_out(*worker, now_ns)) {
    worker->health.eject(cluster::WorkerHealth::Cause::kShare, now_ns);
  }
}

// FT-13: of at least twenty requests in ten seconds it has failed so many more than the others of
// its pool that it is no chance: by a tenth of them, and by 1.9 standard deviations of what theirs
// lead to expect.
bool Fleet::is_odd_one_out(const Worker& worker, int64_t now_ns) const {
  constexpr int kRequestsMin = 20;
  constexpr double kDeviations = 1.9;
  constexpr double kLeast = 0.1;
  if (worker.health.state(now_ns) == WorkerState::kEjected) return false;
  const cluster::WorkerHealth::Share mine = worker.health.share(now_ns);
  if (mine.requests < kRequestsMin || is_half_ejected(worker.config.pool)) return false;
  cluster::WorkerHealth::Share others;
  for (const std::unique_ptr<Worker>& other : workers_) {
    if (other == nullptr || other.get() == &worker || other->config.pool != worker.config.pool ||
        other->kind == WorkerKind::kRegion) {
      continue;
    }
    const cluster::WorkerHealth::Share share = other->health.share(now_ns);
    others.requests += share.requests;
    others.failures += share.failures;
  }
  // Where nothing is known of others, one of two of theirs might have failed.
  const double expected = (others.failures + 1.0) / (others.requests + 2.0);
  const double deviation = std::sqrt(expected * (1 - expected) / mine.requests);
  const double share = static_cast<double>(mine.failures) / mine.requests;
  return share > expected + std::max(kLeast, kDeviations * deviation);
}

// One more, and most of the pool would be out: then it is not the workers (FT-13).
bool Fleet::is_half_ejected(std::string_view pool) const {
  const int64_t now_ns = clock_.now_ns();
  size_t all = 0;
  size_t ejected = 0;
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker == nullptr || worker->config.pool != pool) continue;
    if (worker->kind == WorkerKind::kRegion) continue;
    ++all;
    if (worker->health.state(now_ns) == WorkerState::kEjected) ++ejected;
  }
  return 2 * (ejected + 1) > all;
}

bool Fleet::command(std::string_view name, Command command) {
  std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(workers_, [&](const std::unique_ptr<Worker>& worker) {
    return worker != nullptr && worker->shown == name;
  });
  if (found == workers_.end()) return false;
  cluster::WorkerHealth& health = (*found)->health;
  switch (command) {
    case Command::kDrain:
    case Command::kMove:
    case Command::kUndrain:
      health.set_draining(command != Command::kUndrain);
      (*found)->gives_up_answers = command == Command::kMove;
      break;
    case Command::kEject:
      health.eject(cluster::WorkerHealth::Cause::kOperator, clock_.now_ns());
      break;
    case Command::kRestore:
      health.restore();
      break;
  }
  return true;
}

// One of an earlier version, or another kind, does not know how: it keeps its memory.
void Fleet::release_memory(std::string_view name) {
  std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(workers_, [&](const std::unique_ptr<Worker>& worker) {
    return worker != nullptr && !worker->is_foreign && worker->shown == name;
  });
  if (found == workers_.end()) return;
  net::HttpCall call = call_to(**found, "POST", "/fleet/v1/release");
  call.whole_time_max = kReleaseTime;
  net::HttpCallEvents events;
  events.on_done = [this, shown = (*found)->shown](const Result<void>& result) {
    if (result.ok()) return;
    log_.warning(fmt::format("{} keeps its memory: {}", shown, result.error().message));
  };
  client_.start(std::move(call), std::move(events));
}

std::vector<Fleet::Row> Fleet::rows() const {
  std::lock_guard lock(mutex_);
  const int64_t now_ns = clock_.now_ns();
  std::vector<Row> rows;
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker == nullptr) continue;
    rows.push_back({.name = worker->shown,
                    .pool = worker->config.pool,
                    .url = net::format_host_port(worker->config.host, worker->config.port),
                    .state = worker->health.state(now_ns),
                    .record = worker->record,
                    .load = worker->health.load(),
                    .uncounted = static_cast<int>(worker->uncounted.size()),
                    .open = worker->open,
                    .report_age_ms = worker->health.report_age_ns(now_ns) / 1'000'000,
                    .requests = worker->requests,
                    .failures = worker->failures,
                    .reason = reason_of(*worker, now_ns),
                    .lacks = missing_all_models(*worker),
                    .names_agree = knows_names(*worker),
                    .fingerprint = worker->fingerprint,
                    .bias = worker->first_bias.at(typical_bias(worker->config.pool).first, now_ns),
                    .kind = worker->kind,
                    .abilities = worker->abilities,
                    .role = worker->role,
                    .next_role = worker->next_role,
                    .making = making_of(*worker)});
  }
  return rows;
}

bool Fleet::serves(const PoolConfig& pool, Regions regions) const {
  std::lock_guard lock(mutex_);
  const int64_t now_ns = clock_.now_ns();
  return std::ranges::all_of(pool.models, [&](const std::string& model) {
    return std::ranges::any_of(workers_, [&](const std::unique_ptr<Worker>& worker) {
      return worker != nullptr && cluster::decodes(worker->role) &&
             (regions == Regions::kCount || worker->kind != WorkerKind::kRegion) &&
             serves(*worker, pool.name, model, now_ns);
    });
  });
}

double Fleet::occupancy(std::string_view pool) const {
  std::lock_guard lock(mutex_);
  const int64_t now_ns = clock_.now_ns();
  double slots = 0;
  double requests = 0;
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker == nullptr || worker->kind == WorkerKind::kRegion) continue;
    if (!serves(*worker, pool, {}, now_ns)) continue;
    const cluster::WorkerLoad& load = worker->health.load();
    // Of foreign ones nobody knows the slots: where some wait, there is none free.
    const int known = std::max(worker->record.slots, 1);
    slots += worker->is_foreign && load.waiting > 0 ? std::min(known, load.running) : known;
    requests += std::max(load.running + load.waiting, worker->open);
  }
  return slots > 0 ? requests / slots : std::numeric_limits<double>::infinity();
}

// Those that only compute prompts answer nobody.
PoolSupply Fleet::supply(std::string_view pool) const {
  std::lock_guard lock(mutex_);
  const int64_t now_ns = clock_.now_ns();
  PoolSupply supply;
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker == nullptr || !cluster::decodes(worker->role)) continue;
    if (worker->kind == WorkerKind::kRegion || !serves(*worker, pool, {}, now_ns)) continue;
    ++supply.ready;
    const Slots slots = slots_of(*worker);
    supply.slots += slots.all;
    supply.free_slots += slots.free();
    supply.jobs += static_cast<int>(worker->making.videos.size());
  }
  return supply;
}

}  // namespace pelton::gateway
