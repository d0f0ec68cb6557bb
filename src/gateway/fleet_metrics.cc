#include "gateway/fleet_metrics.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <vector>

namespace pelton::gateway {
namespace {

using telemetry::PrometheusText;
using Type = PrometheusText::Type;

// Beyond so many no worker has a series of its own.
constexpr size_t kWorkersNamed = 256;

void add_index(const Fleet& fleet, PrometheusText& text) {
  const Fleet::IndexSize index = fleet.index_size();
  text.gauge("pelton_gateway_index_names", "KV blocks known of workers.",
             static_cast<double>(index.names));
  text.gauge("pelton_gateway_index_bytes", "Memory of the tables that they stand in.",
             static_cast<double>(index.bytes));
  text.counter("pelton_gateway_index_updates_total", "Blocks stored and let go, as announced.",
               static_cast<double>(index.updates));
  text.counter("pelton_gateway_index_evictions_total", "Names that made room for others.",
               static_cast<double>(index.evictions));
  text.counter("pelton_gateway_index_resyncs_total",
               "How often what is known of a worker began anew.",
               static_cast<double>(index.resyncs));
  text.counter("pelton_gateway_names_doubted_total",
               "Workers whose announcements were found wrong, and passed over from then on.",
               static_cast<double>(fleet.names_doubted()));
}

void add_kv_events(const Fleet::KvEvents& events, PrometheusText& text) {
  text.counter("pelton_gateway_kv_events_batches_total",
               "Batches of KV events from foreign workers.", static_cast<double>(events.batches));
  text.family("pelton_gateway_kv_events_resets_total", Type::kCounter,
              "How often a foreign worker's part of the index began anew, by reason.");
  for (size_t i = 0; i < events.resets.size(); ++i) {
    text.sample({{"reason", name_of(static_cast<cluster::VllmSubscriber::Reset>(i))}},
                static_cast<double>(events.resets[i]));
  }
}

void add_ejections(const Fleet& fleet, PrometheusText& text) {
  using Cause = cluster::WorkerHealth::Cause;
  struct Named {
    Cause cause;
    std::string_view name;
  };
  constexpr std::array<Named, 4> kNames = {{{Cause::kInARow, "failures_in_a_row"},
                                            {Cause::kShare, "failure_share"},
                                            {Cause::kSlow, "slow_first_token"},
                                            {Cause::kOperator, "operator"}}};
  const Fleet::Ejections counts = fleet.ejections();
  text.family("pelton_gateway_ejections_total", Type::kCounter,
              "Workers taken out for a while, by why.");
  for (const Named& one : kNames) {
    text.sample({{"reason", one.name}},
                static_cast<double>(counts[static_cast<size_t>(one.cause)]));
  }
}

// Under the names of the Gateway API's inference extension, for its consoles.
void add_inference_pools(std::span<const Fleet::Row> rows, PrometheusText& text) {
  struct Pool {
    int ready = 0;
    int waiting = 0;
    double kv_used = 0;
  };
  std::map<std::string_view, Pool> pools;
  for (const Fleet::Row& row : rows) {
    if (row.kind == WorkerKind::kRegion) continue;
    Pool& pool = pools[row.pool];
    if (row.state != cluster::WorkerState::kReady) continue;
    ++pool.ready;
    pool.waiting += row.load.waiting;
    pool.kv_used += row.load.kv_used;
  }
  for (const auto& [name, pool] : pools) {
    const double ready = std::max(pool.ready, 1);
    const auto gauge = [&, &name = name](std::string_view family, std::string_view help,
                                         double value) {
      text.family(family, Type::kGauge, help);
      text.sample({{"name", name}}, value);
    };
    gauge("inference_pool_ready_pods", "Workers that are ready.", pool.ready);
    gauge("inference_pool_average_queue_size", "Requests that wait, by ready worker.",
          pool.waiting / ready);
    gauge("inference_pool_average_kv_cache_utilization", "Use of KV caches, 0 to 1, on average.",
          pool.kv_used / ready);
  }
}

}  // namespace

void add_fleet_metrics(const Fleet& fleet, std::span<const Fleet::Row> rows, PrometheusText& text) {
  add_index(fleet, text);
  add_kv_events(fleet.kv_events(), text);
  add_ejections(fleet, text);
  text.family("pelton_gateway_workers", Type::kGauge, "Workers by state.");
  for (int i = 0; i <= static_cast<int>(cluster::WorkerState::kDown); ++i) {
    const auto state = static_cast<cluster::WorkerState>(i);
    const auto count = std::ranges::count_if(rows, [&](const Fleet::Row& row) {
      return row.state == state && row.kind != WorkerKind::kRegion;
    });
    text.sample({{"state", worker_state_name(state)}}, static_cast<double>(count));
  }
  add_inference_pools(rows, text);
  text.family("pelton_gateway_report_age_seconds", Type::kGauge,
              "How old each worker's last report is; of the first 256 workers.");
  for (size_t i = 0; i < std::min(rows.size(), kWorkersNamed); ++i) {
    if (rows[i].record.incarnation.empty()) continue;  // it has said nothing yet
    text.sample({{"pool", rows[i].pool}, {"worker", rows[i].name}},
                static_cast<double>(rows[i].report_age_ms) * 1e-3);
  }
}

}  // namespace pelton::gateway
