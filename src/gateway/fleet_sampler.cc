#include "gateway/fleet_sampler.h"

#include "base/json_writer.h"

namespace pelton::gateway {
namespace {

constexpr size_t kOutcomes = GatewayFigures::kOutcomes.size();

struct PoolNow {
  int workers = 0;
  int ready = 0;
  int64_t running = 0;
  int64_t waiting = 0;
};

void write_pools(base::JsonWriter& w, std::span<const Fleet::Row> workers) {
  std::map<std::string_view, PoolNow> pools;
  for (const Fleet::Row& row : workers) {
    if (row.kind == WorkerKind::kRegion) continue;
    PoolNow& pool = pools[row.pool];
    ++pool.workers;
    if (row.state == cluster::WorkerState::kReady) ++pool.ready;
    if (!reports_now(row.state)) continue;
    pool.running += row.load.running;
    pool.waiting += row.load.waiting;
  }
  w.key("pools").begin_object();
  size_t shown = 0;
  for (const auto& [name, pool] : pools) {
    if (++shown > FleetSampler::kPoolsShown) break;
    w.key(name).begin_object().key("workers").integer(pool.workers);
    w.key("ready").integer(pool.ready).key("running").integer(pool.running);
    w.key("waiting").integer(pool.waiting).end_object();
  }
  w.end_object();
}

void write_worker(base::JsonWriter& w, const Fleet::Row& row) {
  w.begin_object().key("name").string(row.name).key("pool").string(row.pool);
  w.key("address").string(row.url).key("state").string(worker_state_name(row.state));
  w.key("reason").string(row.reason).key("kind").string(worker_kind_name(row.kind));
  w.key("zone").string(row.record.zone).key("region").string(row.record.region);
  w.key("version").string(row.record.version).key("slots").integer(row.record.slots);
  w.key("running").integer(row.load.running).key("waiting").integer(row.load.waiting);
  w.key("role").string(cluster::worker_role_name(row.role));
  w.key("kv_used").number(row.load.kv_used);
  // What it last said of its load stands there still; whether it says so now is another thing.
  w.key("reports").boolean(reports_now(row.state));
  w.key("requests").integer(row.requests).key("failures").integer(row.failures);
  w.end_object();
}

}  // namespace

bool reports_now(cluster::WorkerState state) {
  return state != cluster::WorkerState::kDown && state != cluster::WorkerState::kJoining;
}

std::string FleetSampler::sample(const Sums& sums, std::span<const Fleet::Row> workers,
                                 int64_t now_ns, int64_t unix_ms) {
  std::array<int64_t, kOutcomes> ended{};
  for (const GatewayFigures::Ended& pool : sums.ended) {
    for (size_t i = 0; i < kOutcomes; ++i) ended[i] += pool.by_outcome[i];
  }
  const double seconds = static_cast<double>(now_ns - ended_ns_) * 1e-9;
  const bool is_first = ended_ns_ == 0 || seconds <= 0;
  // A writer begins with an object or a value: its braces are taken off again.
  std::string text;
  base::JsonWriter w(text);
  w.begin_object().key("at").integer(unix_ms).key("open").integer(sums.open);
  w.key("waiting").integer(sums.waiting).key("ended").begin_object();
  for (size_t i = 0; i < kOutcomes; ++i) {
    w.key(GatewayFigures::kOutcomes[i])
        .number(is_first ? 0 : static_cast<double>(ended[i] - ended_[i]) / seconds);
  }
  w.end_object().key("retries").integer(sums.retries).key("moves").integer(sums.moves);
  w.key("interrupted").integer(sums.interrupted).key("unserved").integer(sums.unserved);
  write_pools(w, workers);
  w.end_object();
  ended_ = ended;
  ended_ns_ = now_ns;
  return text.substr(1, text.size() - 2);
}

std::map<std::string, std::string> worker_rows(std::span<const Fleet::Row> workers) {
  std::map<std::string, std::string> rows;
  for (const Fleet::Row& row : workers) {
    std::string& text = rows[row.name + " " + row.url];
    text.clear();
    base::JsonWriter w(text);
    write_worker(w, row);
  }
  return rows;
}

std::map<std::string, std::string> request_rows(const FleetSampler::Sums& sums) {
  std::map<std::string, GatewayFigures::Ended> pools;
  for (const GatewayFigures::Ended& one : sums.ended) pools[one.pool] = one;
  for (const auto& [pool, held] : sums.held) pools.try_emplace(pool);
  std::map<std::string, std::string> rows;
  for (const auto& [pool, ended] : pools) {
    base::JsonWriter w(rows[pool]);
    w.begin_object().key("pool").string(pool);
    for (size_t i = 0; i < kOutcomes; ++i) {
      w.key(GatewayFigures::kOutcomes[i]).integer(ended.by_outcome[i]);
    }
    const auto held = sums.held.find(pool);
    w.key("held").integer(held == sums.held.end() ? 0 : held->second).end_object();
  }
  return rows;
}

}  // namespace pelton::gateway
