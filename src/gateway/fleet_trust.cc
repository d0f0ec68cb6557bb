// The part of gateway::Fleet that says whether a worker is what its pool takes it for: whether it
// computes what the others do, and whether its blocks are what it calls them.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json_writer.h"
#include "base/random.h"
#include "gateway/fleet.h"
#include "gateway/probe.h"
#include "net/url.h"

namespace pelton::gateway {
namespace {

using cluster::WorkerState;

constexpr int kTestBlocks = 3;
constexpr int64_t kTestAgainNs = 60'000'000'000;
constexpr int64_t kHearNs = 500'000'000;  // what a test stored is announced with a report
constexpr size_t kShownDigits = 12;
constexpr std::chrono::milliseconds kTestTime{30'000};
constexpr int64_t kHeldNs = 60'000'000'000;

std::string shown(std::string_view fingerprint) {
  return fingerprint.empty() ? "none" : std::string(fingerprint.substr(0, kShownDigits));
}

// A prompt that nobody else asks, of tokens that any vocabulary has.
std::vector<TokenId> test_prompt(uint64_t seed, int block_tokens) {
  constexpr uint64_t kFirst = 32;
  constexpr uint64_t kCount = 64;
  std::vector<TokenId> prompt;
  const auto count = static_cast<uint64_t>(kTestBlocks * block_tokens + 1);
  for (uint64_t i = 0; i < count; ++i) {
    prompt.push_back(static_cast<TokenId>(kFirst + base::random_bits(seed, i) % kCount));
  }
  return prompt;
}

std::string test_body(const std::string& model, std::span<const TokenId> prompt) {
  std::string body;
  base::JsonWriter w(body);
  w.begin_object().key("model").string(model).key("max_tokens").integer(1);
  w.key("temperature").integer(0).key("prompt").begin_array();
  for (const TokenId token : prompt) w.integer(token);
  w.end_array().end_object();
  return body;
}

}  // namespace

// Of its pool's models, in their order.
std::string Fleet::fingerprint_of(const PoolConfig& pool, const Worker& worker) {
  std::string all;
  for (const std::string& model : pool.models) {
    const auto found = worker.record.fingerprints.find(model);
    if (found == worker.record.fingerprints.end()) return "";
    all += (all.empty() ? "" : "+") + found->second;
  }
  return all;
}

// Whose fingerprint counts: not of one that is being stopped, or that an operator has taken out;
// one that is down will be back, and counts for a minute.
bool Fleet::holds_fingerprint(const Worker& worker, int64_t now_ns) {
  const bool leaves = worker.leaves || worker.config.draining || worker.health.load().draining ||
                      worker.health.state(now_ns) == WorkerState::kDraining;
  return !leaves && worker.well_ns > 0 && now_ns - worker.well_ns < kHeldNs;
}

// What a pool computes: as configured; else what its workers do whose probe has passed, and of
// several fingerprints the one that most have. It passes to another one only when more have that:
// the first worker may be the wrong one, and in an update the new ones take over at the half.
void Fleet::choose_fingerprint(const PoolConfig& pool, std::string& held, int64_t now_ns) {
  if (!pool.fingerprints.empty()) {
    held = fmt::format("{}", fmt::join(pool.fingerprints, "+"));
    return;
  }
  std::map<std::string_view, int> votes;
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker == nullptr || worker->config.pool != pool.name || worker->fingerprint.empty()) {
      continue;
    }
    const WorkerState state = worker->health.state(now_ns);
    if (state == WorkerState::kReady || state == WorkerState::kUnverified) worker->well_ns = now_ns;
    if (holds_fingerprint(*worker, now_ns)) ++votes[worker->fingerprint];
  }
  const auto before = votes.find(held);
  int most = before == votes.end() ? 0 : before->second;
  std::string chosen = held;
  for (const auto& [fingerprint, count] : votes) {
    if (count <= most) continue;
    most = count;
    chosen = fingerprint;
  }
  if (!held.empty() && chosen != held) {
    log_.warning(
        fmt::format("pool '{}' computes another thing from now on: fingerprint {} of {} "
                    "workers, instead of {}",
                    pool.name, shown(chosen), most, shown(held)));
  }
  held = std::move(chosen);
}

void Fleet::verify(std::string_view pool_name, int64_t now_ns) {
  const auto pool = std::ranges::find(pools_, pool_name, &PoolConfig::name);
  if (pool == pools_.end() || pool->is_foreign()) return;
  std::string& held = fingerprints_[pool->name];
  const bool is_configured = !pool->fingerprints.empty();
  // Of several models a worker may have some, or some asleep: what it has as a whole says nothing.
  const bool is_compared = is_configured || pool->models.size() == 1;
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker == nullptr || worker->config.pool != pool->name) continue;
    if (worker->kind == WorkerKind::kRegion) continue;
    worker->fingerprint = is_compared ? fingerprint_of(*pool, *worker) : "";
  }
  choose_fingerprint(*pool, held, now_ns);
  const std::map<std::string_view, const Worker*> first = first_of_starts(now_ns);
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker == nullptr || worker->config.pool != pool->name) continue;
    if (worker->kind == WorkerKind::kRegion) continue;
    const bool says_nothing = worker->fingerprint.empty();
    const bool differs =
        says_nothing ? is_configured : !held.empty() && worker->fingerprint != held;
    worker->mismatch.clear();
    const auto same = first.find(worker->record.incarnation);
    const bool is_twin = same != first.end() && same->second->serial < worker->serial;
    if (is_twin) {
      worker->mismatch = fmt::format(
          "it is the worker {} at {}, which is reached by two addresses", same->second->shown,
          net::format_host_port(same->second->config.host, same->second->config.port));
    } else if (differs) {
      worker->mismatch = fmt::format(
          "its weights, tokenizer, template or settings are not its pool's: fingerprint "
          "{}, {} {}",
          shown(worker->fingerprint), is_configured ? "configured" : "most workers'", shown(held));
    }
    worker->health.set_unverified(differs || is_twin);
  }
}

// By each start of a worker that is there, the address at which it was found first: one worker is
// one, however it is reached.
std::map<std::string_view, const Fleet::Worker*> Fleet::first_of_starts(int64_t now_ns) const {
  std::map<std::string_view, const Worker*> first;
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker == nullptr || worker->leaves || worker->record.incarnation.empty()) continue;
    if (worker->health.state(now_ns) == WorkerState::kDown) continue;
    const Worker*& known = first[worker->record.incarnation];
    if (known == nullptr || worker->serial < known->serial) known = worker.get();
  }
  return first;
}

void Fleet::note_hit(const Assignment& assignment, const Hit& hit) {
  std::lock_guard lock(mutex_);
  Worker* worker = at({.index = assignment.worker, .serial = assignment.serial});
  if (worker == nullptr || worker->record.incarnation != assignment.incarnation) return;
  if (!worker->names_agree || !worker->name_trust.believed()) return;
  if (hit.block_tokens != worker->record.block_tokens) return;
  // What was fetched for it says nothing of what it had announced.
  if (assignment.peer.port != 0) return;
  // What it finds beyond that may have had names that made room here.
  const bool is_forgotten = hit.real_tokens > hit.expected_tokens && blocks_.evictions() > 0;
  const int64_t difference = std::abs(hit.expected_tokens - hit.real_tokens);
  worker->name_trust.note(!is_forgotten && difference >= worker->record.block_tokens);
  if (worker->name_trust.believed()) return;
  ++names_doubted_;
  worker->name_test_ns = 0;
  log_.warning(fmt::format(
      "worker {}: {} of its last {} answers found other blocks than it had announced; what it "
      "announces is passed over until a test shows that names agree",
      worker->shown, worker->name_trust.wrong(), NameTrust::kAnswers));
}

// Two requests of one prompt that nobody has asked before: its blocks are announced under the names
// that they have here, and the second one finds them.
void Fleet::test_names(Worker& worker, const Place& place, int64_t now_ns) {
  if (worker.name_trust.believed() || worker.testing_names || now_ns < worker.name_test_ns) return;
  if (worker.record.models.empty() || !hasher_) return;
  if (worker.health.state(now_ns) != WorkerState::kReady) return;
  worker.testing_names = true;
  worker.name_test_ns = now_ns + kTestAgainNs;
  const auto prompt = std::make_shared<std::vector<TokenId>>(
      test_prompt(base::mix64(base::fnv1a64(options_.gateway) + static_cast<uint64_t>(now_ns)),
                  worker.record.block_tokens));
  run_test(worker, *prompt, [this, place, prompt](std::optional<int64_t> found) {
    std::lock_guard lock(mutex_);
    Worker* tested = at(place);
    if (tested == nullptr) return;
    tested->testing_names = found.has_value();
    if (found) tested->test_prompt = *prompt;
    tested->test_again_ns = clock_.now_ns() + kHearNs;
  });
}

void Fleet::end_name_test(Worker& worker, const Place& place, int64_t now_ns) {
  if (worker.test_prompt.empty() || now_ns < worker.test_again_ns) return;
  const auto prompt = std::make_shared<std::vector<TokenId>>(std::exchange(worker.test_prompt, {}));
  run_test(worker, *prompt, [this, place, prompt](std::optional<int64_t> found) {
    std::lock_guard lock(mutex_);
    Worker* tested = at(place);
    if (tested == nullptr) return;
    tested->testing_names = false;
    const int block_tokens = tested->record.block_tokens;
    if (!found || block_tokens == 0) return;
    std::vector<int> hits(workers_.size());
    blocks_.find(block_names(*hasher_, {.salt = {}, .adapter = 0}, *prompt, block_tokens),
                 tested->groups.tail_blocks, clock_.now_ns(), hits);
    const bool agree = hits[place.index] == kTestBlocks && *found == kTestBlocks * block_tokens;
    log_.info(
        fmt::format("worker {}: a test of its blocks' names {}: {} of {} announced, {} tokens "
                    "found",
                    tested->shown, agree ? "has passed" : "has failed", hits[place.index],
                    kTestBlocks, *found));
    if (agree) tested->name_trust.begin_anew();
  });
}

// `done`: on a thread of the client's, without the lock; none: it was not answered.
void Fleet::run_test(const Worker& worker, std::span<const TokenId> prompt,
                     std::function<void(std::optional<int64_t> found)> done) {
  net::HttpCall call = call_to(worker, "POST", "/fleet/v1/run");
  call.whole_time_max = kTestTime;
  const cluster::RunEnvelope envelope{.incarnation = worker.record.incarnation,
                                      .request_id = "probe-names",
                                      .gateway = options_.gateway,
                                      .method = "POST",
                                      .path = "/v1/completions",
                                      .headers = {{"Content-Type", "application/json"}},
                                      .created_ms = clock_.unix_ms()};
  cluster::append_frame(call.body, {.type = cluster::FrameType::kRun, .payload = encode(envelope)});
  cluster::append_frame(call.body, {.type = cluster::FrameType::kBody,
                                    .payload = test_body(worker.record.models.front(), prompt)});
  const auto probe = std::make_shared<Probe>();
  net::HttpCallEvents events;
  events.on_body = [probe](std::string_view bytes) { probe->push(bytes); };
  events.on_done = [probe, done = std::move(done)](const Result<void>& result) {
    const bool is_answered = result.ok() && probe->is_whole() && probe->status == 200;
    done(is_answered ? probe->cached_tokens : std::nullopt);
  };
  client_.start(std::move(call), std::move(events));
}

std::optional<Fleet::WorkerIndex> Fleet::index_of(std::string_view name) const {
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < workers_.size(); ++i) {
    const Worker* worker = workers_[i].get();
    if (worker == nullptr || worker->shown != name) continue;
    return WorkerIndex{
        .blocks = blocks_.held_by(static_cast<int>(i)),
        .block_tokens = worker->is_foreign ? worker->kv_block_tokens : worker->record.block_tokens,
        .names_agree = worker->names_agree,
        .believed = worker->name_trust.believed(),
        .wrong = worker->name_trust.wrong(),
        .fingerprint = worker->fingerprint};
  }
  return std::nullopt;
}

int64_t Fleet::names_doubted() const {
  std::lock_guard lock(mutex_);
  return names_doubted_;
}

}  // namespace pelton::gateway
