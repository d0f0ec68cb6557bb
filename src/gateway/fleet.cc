#include "gateway/fleet.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "gateway/router.h"
#include "net/url.h"

namespace pelton::gateway {
namespace {

using cluster::Frame;
using cluster::FrameType;
using cluster::WorkerState;

constexpr std::chrono::milliseconds kTurn{50};
// Later than that, it was this process that paused, and not the workers.
constexpr int64_t kTurnLateNs = 200'000'000;
constexpr int64_t kWatchAgainNs = 200'000'000;
constexpr int64_t kProbeAgainNs = 1'000'000'000;
// What a worker was sent it has in its reports by then, or has never had.
constexpr int64_t kUncountedNs = 2'000'000'000;
constexpr std::chrono::milliseconds kConnectTime{1'000};
constexpr std::chrono::milliseconds kWatchQuiet{3'000};
constexpr std::chrono::milliseconds kProbeTime{2'000};

// Whether the worker's list of models, as it answers clients, has what its record says.
bool lists_models(std::string_view body, const std::vector<std::string>& models) {
  const Result<Json> json = Json::parse(body);
  const Json* data = json.ok() ? json->find("data") : nullptr;
  if (data == nullptr || !data->is_array() || models.empty()) return false;
  return std::ranges::all_of(models, [&](const std::string& model) {
    return std::ranges::any_of(data->as_array(), [&](const Json& card) {
      return card.string("id") == std::optional(model);
    });
  });
}

// What a probe has answered, as it comes.
struct Probe {
  cluster::FrameReader reader;
  std::string body;
  int status = 0;
  bool whole = false;
  bool broken = false;

  void push(std::string_view bytes) {
    reader.push(bytes);
    while (!broken) {
      const Result<std::optional<Frame>> frame = reader.next();
      if (!frame.ok()) broken = true;
      if (!frame.ok() || !*frame) return;
      if ((*frame)->type == FrameType::kHead) {
        const Result<cluster::AnswerHead> head = cluster::decode_answer_head((*frame)->payload);
        status = head.ok() ? head->status : 0;
      } else if ((*frame)->type == FrameType::kBytes) {
        body += (*frame)->payload;
        whole = (*frame)->has(Frame::kLast);
      }
    }
  }
};

}  // namespace

Fleet::Fleet(Options options, const base::Clock& clock, base::Log& log)
    : options_(std::move(options)),
      clock_(clock),
      log_(log),
      workers_([this] {
        std::vector<Worker> workers;
        for (const WorkerConfig& config : options_.workers) {
          workers.push_back(
              {.config = config, .shown = net::format_host_port(config.host, config.port)});
        }
        return workers;
      }()),
      turned_ns_(clock.now_ns()),
      client_({.threads = 1, .trust = options_.trust}),
      ticker_({.name = "pelton-fleet", .interval = kTurn}, [this] { turn(); }) {}

net::HttpCall Fleet::call_to(const Worker& worker, std::string method, std::string target) const {
  net::HttpCall call{.method = std::move(method),
                     .host = worker.config.host,
                     .port = worker.config.port,
                     .tls = options_.trust != nullptr,
                     .target = std::move(target),
                     .connect_time_max = kConnectTime};
  call.headers.add("x-pelton-gateway", options_.gateway);
  return call;
}

// Every worker: is it time to watch or probe it, and who has to hear that it is gone?
void Fleet::turn() {
  std::vector<Listening> lost;
  {
    std::lock_guard lock(mutex_);
    const int64_t now_ns = clock_.now_ns();
    const int64_t late_ns = now_ns - turned_ns_ - std::chrono::nanoseconds(kTurn).count();
    turned_ns_ = now_ns;
    for (size_t i = 0; i < workers_.size(); ++i) {
      Worker& worker = workers_[i];
      if (late_ns > kTurnLateNs) worker.health.forgive(late_ns);
      if (!worker.watched && now_ns >= worker.watch_again_ns) watch(i);
      const bool probes = worker.health.state(now_ns) == WorkerState::kProbing &&
                          worker.health.load().ready && !worker.probing &&
                          now_ns >= worker.probe_again_ns;
      if (probes) probe(i);
      for (Listening& one : note_state(worker, now_ns)) lost.push_back(std::move(one));
    }
  }
  for (const Listening& one : lost) {
    if (const auto listener = one.listener.lock()) listener->on_worker_lost(one.attempt);
  }
}

// Says in the log what has changed; gives back those who have to hear of it.
std::vector<Fleet::Listening> Fleet::note_state(Worker& worker, int64_t now_ns) {
  const WorkerState state = worker.health.state(now_ns);
  std::erase_if(worker.listening, [](const Listening& one) { return one.listener.expired(); });
  if (state != worker.logged) {
    const std::string line = fmt::format("worker {} is {}", worker.shown, worker_state_name(state));
    state == WorkerState::kDown ? log_.warning(line) : log_.info(line);
    worker.logged = state;
  }
  if (state != WorkerState::kDown) return {};
  return std::exchange(worker.listening, {});
}

void Fleet::watch(size_t index) {
  Worker& worker = workers_[index];
  worker.watched = true;
  worker.reader = cluster::FrameReader(size_t{1} << 20);
  net::HttpCall call = call_to(worker, "GET", "/fleet/v1/watch");
  call.head_time_max = kWatchQuiet;
  call.quiet_time_max = kWatchQuiet;
  net::HttpCallEvents events;
  events.on_body = [this, index](std::string_view bytes) { on_watch_bytes(index, bytes); };
  events.on_done = [this, index](Result<void> result) { on_watch_done(index, result); };
  client_.start(std::move(call), std::move(events));
}

void Fleet::on_watch_bytes(size_t index, std::string_view bytes) {
  std::lock_guard lock(mutex_);
  Worker& worker = workers_[index];
  worker.reader.push(bytes);
  read_watch(worker, clock_.now_ns());
}

void Fleet::read_watch(Worker& worker, int64_t now_ns) {
  for (;;) {
    const Result<std::optional<Frame>> frame = worker.reader.next();
    if (!frame.ok() || !*frame) return;  // what is no frame stays silent, and so becomes suspect
    if ((*frame)->type == FrameType::kLoad) {
      const Result<cluster::WorkerLoad> load = cluster::decode_worker_load((*frame)->payload);
      if (load.ok()) worker.health.note_load(*load, now_ns);
    }
    if ((*frame)->type != FrameType::kRecord) continue;
    Result<cluster::WorkerRecord> record = cluster::decode_worker_record((*frame)->payload);
    if (!record.ok()) {
      log_.warning(fmt::format("worker {}: {}", worker.shown, record.error().message));
      continue;
    }
    const auto news = worker.health.note_record(*record, now_ns);
    worker.record = *std::move(record);
    if (!worker.record.name.empty()) worker.shown = worker.record.name;
    if (news == cluster::WorkerHealth::News::kNewIncarnation) {
      worker.dispatched = 0;
      worker.probe_again_ns = 0;
    }
  }
}

void Fleet::on_watch_done(size_t index, const Result<void>& result) {
  std::lock_guard lock(mutex_);
  Worker& worker = workers_[index];
  const int64_t now_ns = clock_.now_ns();
  const bool refused = !result.ok() && result.error().code == ErrorCode::kUnavailable;
  if (!result.ok()) log_.debug(fmt::format("worker {}: {}", worker.shown, result.error().message));
  worker.watched = false;
  // At once after a reset: only a refusal means that the worker is gone.
  worker.watch_again_ns = refused ? now_ns + kWatchAgainNs : now_ns;
  worker.health.note_watch_lost(refused, now_ns);
}

void Fleet::probe(size_t index) {
  Worker& worker = workers_[index];
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
  events.on_done = [this, index, probe, record = worker.record](const Result<void>& result) {
    const bool passed = result.ok() && probe->whole && probe->status == 200 &&
                        lists_models(probe->body, record.models);
    on_probed(index, record.incarnation, passed);
  };
  client_.start(std::move(call), std::move(events));
}

void Fleet::on_probed(size_t index, const std::string& incarnation, bool passed) {
  std::lock_guard lock(mutex_);
  Worker& worker = workers_[index];
  worker.probing = false;
  worker.probe_again_ns = clock_.now_ns() + kProbeAgainNs;
  if (worker.record.incarnation != incarnation) return;
  worker.health.note_probe(passed);
  if (!passed) log_.warning(fmt::format("worker {} has not passed its probe", worker.shown));
}

int Fleet::uncounted(const Worker& worker, int64_t now_ns) const {
  if (now_ns - worker.dispatched_ns > kUncountedNs) return 0;
  const int64_t count = worker.dispatched - worker.health.load().dispatch;
  return static_cast<int>(std::clamp<int64_t>(count, 0, 1 << 20));
}

// As it says itself: one that was put into a pool by mistake gets none of its requests.
bool Fleet::has_model(const Worker& worker, std::string_view model) {
  return model.empty() ||
         std::ranges::find(worker.record.models, model) != worker.record.models.end();
}

std::optional<Fleet::Assignment> Fleet::assign(const Wanted& wanted) {
  std::lock_guard lock(mutex_);
  const int64_t now_ns = clock_.now_ns();
  std::vector<Candidate> candidates;
  candidates.reserve(workers_.size());
  for (size_t i = 0; i < workers_.size(); ++i) {
    const Worker& worker = workers_[i];
    const cluster::WorkerLoad& load = worker.health.load();
    const bool usable = worker.config.pool == wanted.pool && has_model(worker, wanted.model) &&
                        worker.health.takes_requests(now_ns) &&
                        std::ranges::find(wanted.excluded, i) == wanted.excluded.end();
    candidates.push_back({.slots = worker.record.slots,
                          .running = load.running,
                          .waiting = load.waiting,
                          .uncounted = uncounted(worker, now_ns),
                          .usable = usable});
  }
  const std::optional<size_t> chosen = choose_worker(candidates, wanted.draw);
  if (!chosen) return std::nullopt;
  Worker& worker = workers_[*chosen];
  if (worker.health.state(now_ns) == WorkerState::kEjected) worker.health.note_trial();
  worker.dispatched_ns = now_ns;
  ++worker.requests;
  return Assignment{.worker = *chosen,
                    .host = worker.config.host,
                    .port = worker.config.port,
                    .trust = options_.trust,
                    .incarnation = worker.record.incarnation,
                    .dispatch = ++worker.dispatched};
}

void Fleet::listen(const Assignment& assignment, std::weak_ptr<WorkerLossListener> listener,
                   int attempt) {
  std::lock_guard lock(mutex_);
  workers_[assignment.worker].listening.push_back(
      {.listener = std::move(listener), .attempt = attempt});
}

void Fleet::note_outcome(const Assignment& assignment, Outcome outcome) {
  std::lock_guard lock(mutex_);
  Worker& worker = workers_[assignment.worker];
  if (worker.record.incarnation != assignment.incarnation) return;
  if (outcome == Outcome::kFailed) ++worker.failures;
  if (outcome == Outcome::kNeither) return;
  worker.health.note_outcome(outcome == Outcome::kFailed, clock_.now_ns());
}

bool Fleet::command(std::string_view name, Command command) {
  std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find_if(workers_, [&](const Worker& worker) { return worker.shown == name; });
  if (found == workers_.end()) return false;
  switch (command) {
    case Command::kDrain:
    case Command::kUndrain:
      found->health.set_draining(command == Command::kDrain);
      break;
    case Command::kEject:
      found->health.eject(clock_.now_ns());
      break;
    case Command::kRestore:
      found->health.restore();
      break;
  }
  return true;
}

std::vector<Fleet::Row> Fleet::rows() const {
  std::lock_guard lock(mutex_);
  const int64_t now_ns = clock_.now_ns();
  std::vector<Row> rows;
  for (const Worker& worker : workers_) {
    rows.push_back({.name = worker.shown,
                    .pool = worker.config.pool,
                    .url = net::format_host_port(worker.config.host, worker.config.port),
                    .state = worker.health.state(now_ns),
                    .record = worker.record,
                    .load = worker.health.load(),
                    .uncounted = uncounted(worker, now_ns),
                    .report_age_ms = worker.health.report_age_ns(now_ns) / 1'000'000,
                    .requests = worker.requests,
                    .failures = worker.failures});
  }
  return rows;
}

bool Fleet::serves(std::string_view pool) const {
  std::lock_guard lock(mutex_);
  const int64_t now_ns = clock_.now_ns();
  return std::ranges::any_of(workers_, [&](const Worker& worker) {
    return worker.config.pool == pool && worker.health.takes_requests(now_ns);
  });
}

}  // namespace pelton::gateway
