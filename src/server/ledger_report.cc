#include "server/ledger_report.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "server/health.h"
#include "server/services.h"
#include "telemetry/process_usage.h"

namespace pelton::server {
namespace {

using base::JsonWriter;

void write_blocks(JsonWriter& json, std::string_view group, const engine::Ledger::Blocks& blocks) {
  json.key(group).begin_object();
  json.key("total").integer(blocks.total).key("free").integer(blocks.free);
  json.key("kept").integer(blocks.kept).key("held").integer(blocks.held);
  json.key("pinned").integer(blocks.pinned).end_object();
}

void write_engine(JsonWriter& json, const engine::ExecutorCapacity& capacity,
                  const engine::Ledger& ledger) {
  json.key("blocks").begin_object();
  for (kv::Tier tier = kv::kDevice; tier < kv::kTierCount; ++tier) {
    for (int group = 0; group < capacity.groups.size(); ++group) {
      const std::string pool = kv::pool_name(capacity.groups[group].spec, tier);
      write_blocks(json, pool, ledger.of(group, tier));
    }
  }
  json.end_object();
  json.key("sequences").begin_object();
  json.key("running").integer(ledger.running).key("waiting").integer(ledger.waiting);
  json.key("draining").integer(ledger.draining).end_object();
  json.key("slots_free").integer(ledger.slots_free);
  json.key("pooled_slots_free").integer(ledger.pooled_slots_free);
  json.key("steps_in_flight").integer(ledger.steps_in_flight);
  json.key("streams").integer(ledger.streams);
  json.key("queue").begin_object();
  json.key("requests").integer(ledger.queued).key("tokens").integer(ledger.queued_tokens);
  json.end_object();
  json.key("kv_events").begin_object();
  json.key("count").integer(ledger.kv_events).key("dropped").integer(ledger.kv_events_dropped);
  json.end_object();
  json.key("integrity_checks").integer(ledger.integrity_checks);
}

// Null: not known yet. Without `adaptive` nobody forecasts a gain.
void write_known(JsonWriter& json, std::string_view key, double value) {
  json.key(key);
  if (value > 0) {
    json.number(value);
  } else {
    json.null();
  }
}

// Null: never tried.
void write_acceptance(JsonWriter& json,
                      const engine::DraftController::Report::Acceptance& by_place) {
  json.begin_array();
  for (const std::optional<double>& acceptance : by_place) {
    if (acceptance) {
      json.number(*acceptance);
    } else {
      json.null();
    }
  }
  json.end_array();
}

// What the controller of speculation knows, and what it chose last.
void write_drafts(JsonWriter& json, const engine::EngineStats& stats,
                  std::span<const std::string> proposers) {
  const engine::DraftController::Report& report = stats.drafts;
  json.key("speculation").begin_object();
  json.key("state").string(engine::name_of(report.state));
  json.key("draft_tokens").integer(report.guesses).key("rows").integer(report.rows);
  write_known(json, "gain", report.gain);
  json.key("drafted_share").number(report.drafted_share);
  write_known(json, "step_ms", report.step_ns * 1e-6);
  write_known(json, "draft_ms", report.draft_ns * 1e-6);
  json.key("acceptance");
  write_acceptance(json, report.acceptance);
  json.key("proposers").begin_object();
  for (size_t i = 0; i < proposers.size(); ++i) {
    const auto& proposed = stats.scheduler.by_proposer[i];
    json.key(proposers[i]).begin_object();
    json.key("drafts").integer(proposed.drafts);
    json.key("draft_tokens").integer(proposed.draft_tokens);
    json.key("accepted_tokens").integer(proposed.accepted_tokens);
    write_known(json, "draft_ms", report.proposers[i].draft_ns * 1e-6);
    json.key("acceptance");
    write_acceptance(json, report.proposers[i].acceptance);
    json.end_object();
  }
  json.end_object().end_object();
}

int64_t open_generations(const Services& services) {
  int64_t open = 0;
  for (const auto& model : services.catalogue.held()) open += model->state->meter.open();
  return open;
}

void write_server(JsonWriter& json, const Services& services, int connections) {
  const access::RequestStatistics::Counts counts = services.statistics.counts();
  json.key("requests").begin_object();
  json.key("received").integer(counts.received).key("ok").integer(counts.ok);
  json.key("client_errors").integer(counts.client_errors);
  json.key("server_errors").integer(counts.server_errors);
  json.key("cancelled").integer(counts.cancelled).key("open").integer(counts.open());
  json.end_object();
  json.key("generations").integer(open_generations(services));
  const TurnCache::Counts turns = services.turn_cache.counts();
  json.key("turn_cache").begin_object();
  json.key("turns").integer(turns.turns).key("tokens").integer(turns.tokens).end_object();
  json.key("connections").integer(connections);
}

}  // namespace

std::string ledger_report(const Services& services, int connections) {
  const auto models = services.catalogue.held();
  std::vector<engine::Ledger> ledgers;
  for (const auto& model : models) ledgers.push_back(model->engine.ledger());
  const bool clean = services.statistics.counts().open() == 0 && open_generations(services) == 0 &&
                     std::ranges::all_of(ledgers, &engine::Ledger::clean);
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  json.key("clean").boolean(clean);
  json.key("state").string(state_name(services));
  if (models.size() > 1) {
    json.key("engines").begin_object();
  } else {
    json.key("engine");
    if (models.empty()) json.null();
  }
  for (size_t i = 0; i < models.size(); ++i) {
    if (models.size() > 1) json.key(models[i]->id);
    json.begin_object();
    write_engine(json, models[i]->engine.capacity(), ledgers[i]);
    const engine::ExecutorCapacity& capacity = models[i]->engine.capacity();
    if (capacity.draft_tokens_max > 0) {
      write_drafts(json, models[i]->engine.stats(), capacity.proposers);
    }
    json.end_object();
  }
  if (models.size() > 1) json.end_object();
  json.key("server").begin_object();
  write_server(json, services, connections);
  json.end_object();
  json.key("process");
  telemetry::write_process(json);
  json.end_object();
  return out;
}

}  // namespace pelton::server
