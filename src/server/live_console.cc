#include "server/live_console.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "console/pages.h"

namespace pelton::server {
namespace {

// The counts of one more model.
void add(std::vector<int64_t>& sums, const telemetry::Histogram::Reading& reading) {
  sums.resize(reading.up_to.size());
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += reading.up_to[i];
}

void add_model(LiveCounters& counters, const ServedModel& model) {
  const engine::EngineStats stats = model.engine.stats();
  const engine::Ledger ledger = model.engine.ledger();
  const engine::ExecutorCapacity& capacity = model.engine.capacity();
  counters.output_tokens += stats.steps.output_tokens;
  counters.prompt_tokens += stats.scheduler.prompt_tokens;
  counters.steps += stats.steps.count;
  counters.prefix_tokens_asked += stats.prefix_tokens_asked;
  counters.prefix_tokens_found += stats.prefix_tokens_found;
  counters.running += stats.running;
  counters.waiting += std::max(stats.waiting, stats.queued);
  const GenerationMeter::Histograms& all = model.state->meter.histograms();
  counters.first_bounds = all.first_token_s.bounds();
  add(counters.first_token, all.first_token_s.read());
  counters.inter_bounds = all.inter_token_s.bounds();
  add(counters.inter_token, all.inter_token_s.read());
  for (int group = 0; group < capacity.groups.size(); ++group) {
    const std::string name(kv::pool_name(capacity.groups[group].spec, kv::kDevice));
    auto known = std::ranges::find(counters.kv, name, &LiveCounters::Group::name);
    if (known == counters.kv.end()) known = counters.kv.insert(known, {.name = name});
    known->used += stats.blocks_used[group];
    known->total += ledger.of(group, kv::kDevice).total;
  }
}

}  // namespace

LiveConsole::LiveConsole(const Parts& parts)
    : parts_(parts),
      streams_({.news =
                    [this](int64_t after) {
                      LiveHistory::News news = history_.after(after);
                      return console::EventStreams::News{.newest = news.newest,
                                                         .data = std::move(news.samples)};
                    },
                .ends = [this] { return parts_.services.draining || parts_.services.leaving; }}),
      sampler_({.name = "pelton-live", .interval = std::chrono::seconds(1)}, [this] { note(); }) {}

void LiveConsole::note() {
  LiveCounters counters;
  for (const std::shared_ptr<const ServedModel>& model : parts_.services.catalogue.held()) {
    add_model(counters, *model);
  }
  const base::Clock& clock = parts_.services.clock;
  history_.note(counters, clock.now_ns(), clock.unix_ms());
}

bool LiveConsole::handle(const net::HttpRequest& request,
                         const std::shared_ptr<net::Exchange>& exchange) {
  if (!console::is_console_path(request.path)) return false;
  if (request.method != "GET" && request.method != "HEAD") {
    exchange->send(console::only_for_reading(request));
  } else if (request.path == "/console/live") {
    streams_.follow(request, exchange);
  } else {
    std::vector<std::string_view> pages = {"live"};
    if (parts_.services.chains != nullptr) pages.emplace_back("chain_figures");
    pages.emplace_back("server_health");
    exchange->send(console::console_reply(request, {.version = parts_.services.options.version,
                                                    .pages = std::move(pages),
                                                    .chat_port = parts_.chat_port,
                                                    .chat_tls = parts_.chat_tls}));
  }
  return true;
}

}  // namespace pelton::server
