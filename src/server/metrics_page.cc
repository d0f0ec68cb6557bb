#include "server/metrics_page.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "access/audit_metrics.h"
#include "chain_http/chain_service.h"
#include "server/health.h"
#include "server/services.h"
#include "server/speech_use.h"
#include "server/tool_servers.h"
#include "speech/transcriber.h"
#include "telemetry/process_usage.h"
#include "telemetry/prometheus_text.h"

namespace pelton::server {
namespace {

using telemetry::PrometheusText;
using Type = PrometheusText::Type;

double share(int part, int whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

void write_steps(PrometheusText& text, const engine::EngineStats& stats) {
  telemetry::Histogram::Reading reading{.up_to = {},
                                        .sum = static_cast<double>(stats.steps.tokens)};
  int64_t steps = 0;
  for (const int64_t count : stats.steps.by_tokens) reading.up_to.push_back(steps += count);
  const auto& bounds = engine::StepCounts::kTokenBounds;
  text.family("vllm:iteration_tokens_total", Type::kHistogram, "Tokens computed in one step.");
  text.histogram({}, {bounds.begin(), bounds.end()}, reading);
}

// vLLM's names and meanings. Of at most two thousand blocks, evenly spread.
void write_block_times(PrometheusText& text, const engine::EngineStats::BlockTimes& times) {
  using Times = engine::EngineStats::BlockTimes;
  const auto write = [&](std::string_view name, std::string_view help,
                         const Times::Histogram& spread) {
    telemetry::Histogram::Reading reading{.up_to = {}, .sum = spread.sum_s};
    int64_t blocks = 0;
    for (const int64_t count : spread.counts) reading.up_to.push_back(blocks += count);
    text.family(name, Type::kHistogram, help);
    text.histogram({}, {Times::kBounds.begin(), Times::kBounds.end()}, reading);
  };
  write("vllm:kv_block_lifetime_seconds",
        "From a KV block's being taken until what it held made room.", times.lifetime);
  write("vllm:kv_block_idle_before_evict_seconds",
        "From its being taken or found the last time until then.", times.idle);
  write("vllm:kv_block_reuse_gap_seconds", "From a KV block's being found to being found again.",
        times.reuse_gap);
}

// `num_gpu_blocks`, as vLLM calls it, of the widest group, and `num_NAME_blocks` of the others.
void write_cache_config(PrometheusText& text, const engine::ExecutorCapacity& capacity) {
  const int widest = kv::widest_group(capacity.groups);
  std::vector<std::pair<std::string, std::string>> fields = {
      {"block_size", std::to_string(capacity.block_tokens)},
      {"num_gpu_blocks", std::to_string(capacity.blocks(widest, kv::kDevice))}};
  for (int group = 0; group < capacity.groups.size(); ++group) {
    if (group == widest) continue;
    fields.emplace_back("num_" + capacity.groups[group].spec.name + "_blocks",
                        std::to_string(capacity.blocks(group, kv::kDevice)));
  }
  text.family("vllm:cache_config_info", Type::kGauge, "The KV cache's shape.");
  PrometheusText::Labels labels;
  for (const auto& [name, value] : fields) labels.push_back({name, value});
  text.sample(labels, 1);
}

void write_blocks(PrometheusText& text, std::string_view group,
                  const engine::Ledger::Blocks& counted) {
  text.sample({{"group", group}, {"state", "free"}}, counted.free);
  text.sample({{"group", group}, {"state", "kept"}}, counted.kept);
  text.sample({{"group", group}, {"state", "held"}}, counted.held - counted.pinned);
  text.sample({{"group", group}, {"state", "pinned"}}, counted.pinned);
}

// Speculation, where guesses are computed.
void write_drafts(PrometheusText& text, const engine::SchedulerCounters& counted,
                  const engine::ExecutorCapacity& capacity) {
  const std::span<const std::string> proposers = capacity.proposers;
  const auto places =
      std::min(counted.accepted_by_place.size(), static_cast<size_t>(capacity.draft_tokens_max));
  text.counter("vllm:spec_decode_num_drafts_total", "Rows with guesses.",
               static_cast<double>(counted.drafts));
  text.counter("vllm:spec_decode_num_draft_tokens_total", "Tokens guessed.",
               static_cast<double>(counted.draft_tokens));
  text.counter("vllm:spec_decode_num_accepted_tokens_total",
               "Of these, those that were what was sampled.",
               static_cast<double>(counted.accepted_tokens));
  text.family("vllm:spec_decode_num_accepted_tokens_per_pos_total", Type::kCounter,
              "The same by place in the draft, from 0; the last one and all behind it together.");
  for (size_t place = 0; place < places; ++place) {
    text.sample({{"position", std::to_string(place)}},
                static_cast<double>(counted.accepted_by_place[place]));
  }
  text.counter("pelton_spec_decode_draft_seconds_total",
               "Time of steps without prompts that went into guessing.",
               static_cast<double>(counted.draft_ns) * 1e-9);
  text.counter("pelton_spec_decode_step_seconds_total", "What those steps took in all.",
               static_cast<double>(counted.decode_ns) * 1e-9);
  using Proposed = engine::SchedulerCounters::Proposed;
  const auto by_proposer = [&](std::string_view name, std::string_view help,
                               int64_t Proposed::*member) {
    text.family(name, Type::kCounter, help);
    for (size_t i = 0; i < proposers.size(); ++i) {
      text.sample({{"proposer", proposers[i]}},
                  static_cast<double>(counted.by_proposer[i].*member));
    }
  };
  by_proposer("pelton_spec_decode_drafts_total", "Rows with guesses, by who guessed.",
              &Proposed::drafts);
  by_proposer("pelton_spec_decode_draft_tokens_total", "Tokens guessed, by who guessed.",
              &Proposed::draft_tokens);
  by_proposer("pelton_spec_decode_accepted_tokens_total",
              "Of these, those that were what was sampled.", &Proposed::accepted_tokens);
  text.family("pelton_spec_decode_proposer_seconds_total", Type::kCounter,
              "Time of steps without prompts that asking took, by who was asked.");
  for (size_t i = 0; i < proposers.size(); ++i) {
    text.sample({{"proposer", proposers[i]}},
                static_cast<double>(counted.by_proposer[i].draft_ns) * 1e-9);
  }
}

void write_disk(PrometheusText& text, const engine::DiskTier::Counters& disk) {
  text.family("pelton_kv_disk_blocks_total", Type::kCounter,
              "KV blocks moved between the host's memory and --kv-disk, and what became of them.");
  const auto sample = [&](std::string_view kind, int64_t count) {
    text.sample({{"kind", kind}}, static_cast<double>(count));
  };
  sample("written", disk.blocks_written);
  sample("read", disk.blocks_read);
  sample("corrupt", disk.blocks_corrupt);
  sample("error", disk.errors);
  sample("not_written", disk.writes_dropped);
  text.family("pelton_kv_disk_loads_total", Type::kCounter,
              "Prompts with blocks on --kv-disk, by what came of them.");
  sample("begun", disk.loads);
  sample("slower_than_computing", disk.loads_declined);
  sample("late", disk.loads_late);
  text.counter("pelton_kv_disk_off_total",
               "Times that --kv-disk was left alone for a while because it failed.",
               static_cast<double>(disk.times_off));
}

void write_peers(PrometheusText& text, const engine::EngineStats& stats) {
  const engine::PeerTier::Counters& peers = stats.peers;
  const auto sample = [&](std::string_view kind, int64_t count) {
    text.sample({{"kind", kind}}, static_cast<double>(count));
  };
  text.family("pelton_kv_peer_blocks_total", Type::kCounter,
              "KV blocks that travelled between this worker and others (--kv-port).");
  sample("fetched", peers.blocks_fetched);
  sample("sent", stats.served.blocks);
  text.family("pelton_kv_peer_bytes_total", Type::kCounter, "Their bytes.");
  sample("fetched", peers.bytes_fetched);
  sample("sent", stats.served.bytes);
  text.family("pelton_kv_peer_fetches_total", Type::kCounter,
              "Prompts of which another worker was said to have the beginning, by what came of "
              "that.");
  sample("begun", peers.fetches);
  sample("ahead", peers.ahead);
  sample("joined", peers.joined);
  sample("slower_than_computing", peers.declined);
  sample("no_room", peers.no_room);
  sample("left_alone", peers.left_alone);
  sample("late", peers.late);
  sample("nothing", peers.nothing);
  sample("refused", peers.refused);
  sample("corrupt", peers.corrupt);
  sample("failed", peers.failed);
  text.counter("pelton_kv_peer_fetch_seconds_total", "What fetching these blocks took.",
               static_cast<double>(peers.fetch_ns) * 1e-9);
  text.counter("pelton_kv_peer_refused_total",
               "Connections and tickets of peers that this worker refused.",
               static_cast<double>(stats.served.refused));
  text.counter("pelton_kv_peer_revoked_total",
               "Transfers to peers that ended because sequences needed the blocks.",
               static_cast<double>(peers.revoked));
}

void write_tiers(PrometheusText& text, const engine::EngineStats& stats,
                 const engine::ExecutorCapacity& capacity) {
  text.family("pelton_prefix_cache_hits_total", Type::kCounter,
              "Prompt tokens found in the prefix cache, by the tier they were taken from.");
  for (size_t tier = 0; tier < kv::kTierCount; ++tier) {
    text.sample({{"tier", kv::kTierNames[tier]}},
                static_cast<double>(stats.scheduler.prompt_tokens_cached_by_tier[tier]));
  }
  if (stats.has_peers) {
    text.sample({{"tier", "peer"}}, static_cast<double>(stats.scheduler.prompt_tokens_from_peers));
    write_peers(text, stats);
  }
  if (capacity.blocks(kv::widest_group(capacity.groups), kv::kDisk) > 0) {
    write_disk(text, stats.disk);
  }
}

// What only a model with keys and values has.
void write_cache(PrometheusText& text, const engine::EngineStats& stats,
                 const engine::Ledger& ledger, const engine::ExecutorCapacity& capacity) {
  if (capacity.whole_prompts) return;
  text.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
               static_cast<double>(stats.prefix_tokens_asked));
  text.counter("vllm:prefix_cache_hits_total", "Of these, found.",
               static_cast<double>(stats.prefix_tokens_found));
  write_cache_config(text, capacity);
  write_block_times(text, stats.block_times);
  write_tiers(text, stats, capacity);
  text.family("pelton_kv_blocks", Type::kGauge, "KV blocks by group and state.");
  for (kv::Tier tier = kv::kDevice; tier < kv::kTierCount; ++tier) {
    for (int group = 0; group < capacity.groups.size(); ++group) {
      write_blocks(text, kv::pool_name(capacity.groups[group].spec, tier), ledger.of(group, tier));
    }
  }
}

// Of embedding models, and of any other once it has made vectors.
void write_vectors(PrometheusText& text, const engine::Engine& engine,
                   const GenerationMeter::Vectors& vectors) {
  const engine::ExecutorCapacity& capacity = engine.capacity();
  if (capacity.generates() && vectors.texts + vectors.open == 0) return;
  text.counter("pelton_embedding_texts_total",
               "Texts, or pairs of them, of which a vector, a score or labels were made.",
               static_cast<double>(vectors.texts));
  text.counter("pelton_embedding_tokens_total", "Their tokens.",
               static_cast<double>(vectors.tokens));
  const int running = capacity.pooled_sequences_max - engine.ledger().pooled_slots_free;
  text.gauge("pelton_embedding_texts_waiting", "Texts that no step holds yet.",
             static_cast<double>(std::max<int64_t>(vectors.open - running, 0)));
  text.family("pelton_embedding_queue_seconds", Type::kHistogram,
              "From the engine's queue to a step.");
  text.histogram({}, vectors.queue_s);
  const engine::StepCounts steps = engine.stats().steps;
  telemetry::Histogram::Reading fill{.up_to = {}, .sum = steps.fill_sum};
  int64_t counted = 0;
  for (const int64_t count : steps.by_fill) fill.up_to.push_back(counted += count);
  const auto& bounds = engine::StepCounts::kFillBounds;
  text.family("pelton_embedding_batch_fill", Type::kHistogram,
              "Tokens of a step that gave vectors, as a share of the most that a step may hold.");
  text.histogram({}, {bounds.begin(), bounds.end()}, fill);
}

void write_engine(PrometheusText& text, const engine::Engine& engine) {
  const engine::EngineStats stats = engine.stats();
  const engine::Ledger ledger = engine.ledger();
  const engine::ExecutorCapacity& capacity = engine.capacity();
  text.gauge("vllm:num_requests_running", "Requests with a slot.", stats.running);
  // Those on their way to the scheduler are in the second count, those preempted in the first.
  text.gauge("vllm:num_requests_waiting", "Requests that wait for a slot.",
             std::max(stats.waiting, stats.queued));
  // Where some layers see every token, their blocks: those are what long requests run short of.
  const int widest = kv::widest_group(capacity.groups);
  text.gauge("vllm:kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.",
             capacity.whole_prompts
                 ? 0.0
                 : share(stats.blocks_used[widest], ledger.of(widest, kv::kDevice).total));
  text.counter("vllm:num_preemptions_total", "Running requests that had to give up their blocks.",
               static_cast<double>(stats.preemptions));
  // Once for each answer, as vLLM counts: there each is a request of the engine's.
  text.counter("vllm:prompt_tokens_total", "Tokens of prompts taken up.",
               static_cast<double>(stats.scheduler.prompt_tokens));
  text.counter("vllm:generation_tokens_total", "Tokens sampled.",
               static_cast<double>(stats.steps.output_tokens));
  write_cache(text, stats, ledger, capacity);
  write_steps(text, stats);
  text.counter("pelton_engine_steps_total", "Steps computed.",
               static_cast<double>(stats.steps.count));
  text.counter("pelton_engine_steps_failed_total", "Of these, failed.",
               static_cast<double>(stats.steps.failed));
  const engine::SchedulerCounters& counted = stats.scheduler;
  text.counter("pelton_numerical_errors_total",
               "Requests that ended because what was computed for them is not finite.",
               static_cast<double>(counted.numerical_errors));
  text.counter("pelton_prompt_tokens_shared_total",
               "Prompt tokens taken over from another answer to the same request.",
               static_cast<double>(counted.prompt_tokens_shared));
  text.counter("pelton_tokens_lost_total", "Tokens computed and thrown away by preemptions.",
               static_cast<double>(counted.tokens_lost));
  text.family("pelton_preemptions_total", Type::kCounter, "Preemptions by what became of blocks.");
  text.sample({{"kind", "recompute"}}, static_cast<double>(counted.preemptions_recompute));
  text.sample({{"kind", "swap"}}, static_cast<double>(counted.preemptions_swap));
  text.sample({{"kind", "costless"}}, static_cast<double>(counted.preemptions_costless));
  text.family("pelton_kv_block_copies_total", Type::kCounter, "KV blocks copied.");
  text.sample({{"kind", "offload"}}, static_cast<double>(counted.blocks_offloaded));
  text.sample({{"kind", "swap_out"}}, static_cast<double>(counted.blocks_swapped_out));
  text.sample({{"kind", "swap_in"}}, static_cast<double>(counted.blocks_swapped_in));
  text.sample({{"kind", "fork"}}, static_cast<double>(counted.blocks_forked));
  if (capacity.draft_tokens_max > 0) write_drafts(text, counted, capacity);
  text.gauge("pelton_requests_swapped_out", "Waiting requests whose blocks are in host memory.",
             stats.swapped_out);
  text.gauge("pelton_queued_tokens", "Prompt tokens of requests that wait for their first slot.",
             static_cast<double>(ledger.queued_tokens));
  text.gauge("pelton_queue_wait_seconds",
             "How long a request that comes now would wait for its slot, as far as is known.",
             static_cast<double>(stats.queue_wait_ns) * 1e-9);
  text.gauge("pelton_seats_free", "Requests that could be scheduled at once.", ledger.slots_free);
}

void write_generations(PrometheusText& text, const GenerationMeter& meter) {
  using End = GenerationMeter::End;
  text.family("vllm:request_success_total", Type::kCounter, "Answers by what ended them.");
  for (size_t i = 0; i < GenerationMeter::kEndNames.size(); ++i) {
    text.sample({{"finished_reason", GenerationMeter::kEndNames[i]}},
                static_cast<double>(meter.ended(static_cast<End>(i))));
  }
  const auto histogram = [&](std::string_view name, std::string_view help,
                             const telemetry::Histogram& counted) {
    text.family(name, Type::kHistogram, help);
    text.histogram({}, counted);
  };
  const GenerationMeter::Histograms& all = meter.histograms();
  histogram("vllm:time_to_first_token_seconds", "From a request's arrival to its first token.",
            all.first_token_s);
  histogram("vllm:inter_token_latency_seconds", "Between two tokens of one answer.",
            all.inter_token_s);
  histogram("vllm:e2e_request_latency_seconds", "From a request's arrival to its last token.",
            all.whole_s);
  histogram("vllm:request_queue_time_seconds", "From the engine's queue to a slot.", all.queue_s);
  histogram("vllm:request_prefill_time_seconds", "From the slot to the first token.",
            all.prefill_s);
  histogram("vllm:request_decode_time_seconds", "From the first token to the last.", all.decode_s);
  histogram("vllm:request_inference_time_seconds", "From the slot to the last token.",
            all.inference_s);
  histogram("vllm:request_prompt_tokens", "Tokens of a prompt.", all.prompt_tokens);
  histogram("vllm:request_prefill_kv_computed_tokens",
            "Tokens of a prompt that the prefix cache did not have.", all.computed_prompt_tokens);
  histogram("vllm:request_generation_tokens", "Tokens of an answer.", all.output_tokens);
  histogram("vllm:request_max_num_generation_tokens",
            "Tokens of the longest answer to one request.", all.longest_output_tokens);
  histogram("vllm:request_params_n", "Answers asked for.", all.choices);
  histogram("vllm:request_params_max_tokens", "The most tokens an answer may have.",
            all.output_tokens_max);
  histogram("pelton_token_delivery_seconds",
            "From the engine's token to where the kernel has taken its bytes.", all.delivery_s);
}

// Of HTTP, turns over a WebSocket, gRPC and responses in the background; of the last two no bytes
// are known.
void write_routes(
    PrometheusText& text,
    const std::map<access::RequestStatistics::Route, access::RequestStatistics::Sums>& routes) {
  const auto labels = [](const access::RequestStatistics::Route& route) {
    return PrometheusText::Labels{{"handler", route.handler}, {"method", route.method}};
  };
  text.family("http_request_duration_seconds", Type::kHistogram,
              "From a request's arrival to the last of its answer.");
  for (const auto& [route, sums] : routes) {
    text.histogram(labels(route), access::RequestStatistics::second_bounds(), sums.seconds);
  }
  const auto sizes = [&](std::string_view name, std::string_view help,
                         int64_t access::RequestStatistics::Bytes::*bytes) {
    text.family(name, Type::kSummary, help);
    for (const auto& [route, sums] : routes) {
      if (sums.sized == 0) continue;
      text.summary(labels(route),
                   {.count = sums.sized, .sum = static_cast<double>(sums.bytes.*bytes)});
    }
  };
  sizes("http_request_size_bytes", "Bytes of requests' bodies.",
        &access::RequestStatistics::Bytes::asked);
  sizes("http_response_size_bytes", "Bytes of answers' bodies, streamed ones too.",
        &access::RequestStatistics::Bytes::answered);
}

// Output formats that were not known yet.
void write_formats(PrometheusText& text, const WorkPool& pool) {
  const WorkPool::Stats stats = pool.stats();
  text.family("pelton_format_compiles_waiting", Type::kGauge,
              "Requests whose output format waits to be compiled, by lane.");
  text.sample({{"lane", "short"}}, stats.waiting[0]);
  text.sample({{"lane", "long"}}, stats.waiting[1]);
  text.gauge("pelton_format_compiles_running", "Requests whose output format is being compiled.",
             stats.running);
  text.family("pelton_format_compiles_total", Type::kCounter,
              "Requests whose output format had to be compiled, by what became of that.");
  for (size_t i = 0; i < WorkPool::kEndNames.size(); ++i) {
    text.sample({{"end", WorkPool::kEndNames[i]}}, static_cast<double>(stats.ended[i]));
  }
  text.counter("pelton_format_compile_cpu_seconds_total", "Processor time spent on it.",
               static_cast<double>(stats.cpu_us) * 1e-6);
  text.family("pelton_format_compile_seconds", Type::kHistogram,
              "From being queued to being compiled or refused.");
  text.histogram({}, pool.seconds());
}

void write_server(PrometheusText& text, const Services& services) {
  text.family("http_requests_total", Type::kCounter,
              "Requests answered; 499: the client had left.");
  for (const auto& [key, count] : services.statistics.by_key()) {
    const std::string status = std::to_string(key.status);
    text.sample({{"handler", key.handler}, {"method", key.method}, {"status", status}},
                static_cast<double>(count));
  }
  write_routes(text, services.statistics.by_route());
  write_formats(text, services.formats.pool());
  services.reload_statistics.write(text);
  text.gauge("pelton_http_requests_open", "Requests not answered yet.",
             static_cast<double>(services.statistics.counts().open()));
  const TurnCache::Counts turns = services.turn_cache.counts();
  text.gauge("pelton_sampled_turns", "Turns of the model's kept as they were sampled.",
             static_cast<double>(turns.turns));
  text.counter("pelton_sampled_turn_queries_total", "Past turns looked for.",
               static_cast<double>(turns.asked));
  text.counter("pelton_sampled_turn_hits_total", "Of these, found.",
               static_cast<double>(turns.found));
}

void write_reports(PrometheusText& text, const access::RequestReporter::Options& reports) {
  if (reports.access_log != nullptr) {
    text.counter("pelton_access_log_dropped_total", "Lines that were not written in time.",
                 static_cast<double>(reports.access_log->dropped()));
  }
  if (reports.traces == nullptr) return;
  text.counter("pelton_trace_spans_exported_total", "Spans that the collector has taken.",
               static_cast<double>(reports.traces->exported()));
  text.counter("pelton_trace_spans_dropped_total", "Spans that it has not.",
               static_cast<double>(reports.traces->dropped()));
}

void write_store(PrometheusText& text, const store::ResponseStore& store) {
  const store::ResponseStore::Failures failures = store.failures();
  text.family("pelton_response_store_failures_total", Type::kCounter,
              "What the operating system refused to the response store.");
  text.sample({{"operation", "read"}}, static_cast<double>(failures.reads));
  text.sample({{"operation", "write"}}, static_cast<double>(failures.writes));
}

void write_tools(PrometheusText& text, const ToolServers& tools) {
  text.family("pelton_tool_calls_total", Type::kCounter,
              "Calls of models' own tools, by how they ended.");
  for (size_t tool = 0; tool < ToolServers::kToolNames.size(); ++tool) {
    for (size_t end = 0; end < ToolServers::kEndNames.size(); ++end) {
      const int64_t calls =
          tools.calls(static_cast<ToolServers::Tool>(tool), static_cast<ToolServers::End>(end));
      text.sample({{"tool", std::string(ToolServers::kToolNames[tool])},
                   {"result", std::string(ToolServers::kEndNames[end])}},
                  static_cast<double>(calls));
    }
  }
  text.gauge("pelton_tool_sessions_open", "Sessions with tool servers, of responses that run.",
             static_cast<double>(tools.open_sessions()));
}

void write_process(PrometheusText& text) {
  const telemetry::ProcessUsage usage = telemetry::process_usage();
  text.gauge("process_resident_memory_bytes", "Resident memory.",
             static_cast<double>(usage.resident_bytes));
  text.family("pelton_heap_bytes", Type::kGauge,
              "The allocator's: taken by the program, and free but not given back.");
  text.sample({{"state", "used"}}, static_cast<double>(usage.heap_used_bytes));
  text.sample({{"state", "free"}}, static_cast<double>(usage.heap_free_bytes));
  text.counter("process_cpu_seconds_total", "Processor time, user and system.", usage.cpu_seconds);
  text.gauge("process_open_fds", "Open file descriptors.", usage.descriptor_count());
  text.gauge("process_max_fds", "The limit of those.", static_cast<double>(usage.descriptors_max));
  text.gauge("process_start_time_seconds", "Start, in seconds since 1970.",
             usage.start_time_seconds);
  text.gauge("process_threads", "Threads.", usage.thread_count());
}

// Names, as far as there is room for them: "a,b".
std::string names_of(const std::vector<AdapterRegistry::Info>& adapters,
                     int AdapterRegistry::Info::*count) {
  constexpr size_t kNamesMax = 64;
  std::string names;
  size_t written = 0;
  for (const AdapterRegistry::Info& adapter : adapters) {
    if (adapter.*count == 0) continue;
    if (++written > kNamesMax) break;
    names += (names.empty() ? "" : ",") + adapter.name;
  }
  return names;
}

void write_adapter_requests(PrometheusText& text, const AdapterRegistry& adapters) {
  text.family("pelton_lora_requests_total", Type::kCounter,
              "Requests by the adapter that they name.");
  for (const auto& [name, count] : adapters.requests()) {
    text.sample({{"adapter", name}}, static_cast<double>(count));
  }
}

void write_adapters(PrometheusText& text, const AdapterRegistry& adapters) {
  const std::vector<AdapterRegistry::Info> all = adapters.list();
  const AdapterRegistry::Stats stats = adapters.stats();
  text.family("vllm:lora_requests_info", Type::kGauge,
              "When the adapters that requests run with, or wait for, last changed.");
  text.sample({{"max_lora", std::to_string(adapters.active_max())},
               {"running_lora_adapters", names_of(all, &AdapterRegistry::Info::uses)},
               {"waiting_lora_adapters", names_of(all, &AdapterRegistry::Info::waiting)}},
              static_cast<double>(stats.changed_unix_ms) * 1e-3);
  text.gauge("pelton_lora_adapters", "Adapters that are known.", static_cast<double>(all.size()));
  text.gauge("pelton_lora_adapters_resident", "Of these, in memory.", stats.resident);
  text.gauge("pelton_lora_adapters_active", "Of these, in use.", stats.in_use);
  text.gauge("pelton_lora_bytes", "Memory that adapters take.", static_cast<double>(stats.bytes));
  text.gauge("pelton_lora_requests_waiting", "Requests that wait for their adapter to be loaded.",
             stats.waiting);
  text.counter("pelton_lora_hits_total", "Requests that found their adapter in memory.",
               static_cast<double>(stats.hits));
  text.counter("pelton_lora_misses_total", "Requests that did not.",
               static_cast<double>(stats.misses));
  text.counter("pelton_lora_loads_total", "Adapters loaded.", static_cast<double>(stats.loads));
  text.counter("pelton_lora_loads_failed_total", "Adapters that could not be loaded.",
               static_cast<double>(stats.failed_loads));
  text.counter("pelton_lora_load_seconds_total", "Time that loading took.",
               static_cast<double>(stats.load_ns) * 1e-9);
  text.counter("pelton_lora_evictions_total", "Adapters that made room for others.",
               static_cast<double>(stats.evictions));
  write_adapter_requests(text, adapters);
}

// Of models that sleep, too: names stay known, and what was counted is not forgotten.
void write_adapters(PrometheusText& text, const ModelCatalogue::Table& table) {
  for (const ModelCatalogue::Entry& entry : table.entries) {
    if (entry.adapters == nullptr) continue;
    text.set_common({{"model_name", entry.names.id}, {"engine", "0"}});
    write_adapters(text, *entry.adapters);
  }
  text.set_common({});
}

void write_load(PrometheusText& text, const ServedModel& model) {
  if (model.load_phases.empty()) return;
  text.family("pelton_model_load_seconds", Type::kGauge,
              "What the model's load took, by its parts in their order.");
  for (const auto& [phase, seconds] : model.load_phases) {
    text.sample({{"phase", phase}}, seconds);
  }
}

// Where its tokens are sound.
void write_speech(PrometheusText& text, const ServedModel& model) {
  if (model.speech == nullptr) return;
  const SpeechMeter& meter = model.speech->meter;
  text.counter("pelton_speech_audio_seconds_total", "Sound that was handed to connections.",
               static_cast<double>(meter.samples) / model.speech->queue.sample_rate());
  text.family("pelton_speech_first_audio_seconds", Type::kHistogram,
              "From a request's arrival to its first sound.");
  text.histogram({}, meter.first_audio_s);
  text.family("pelton_speech_speed", Type::kHistogram,
              "Seconds of sound for each second from a request's arrival to its last sound.");
  text.histogram({}, meter.speed);
  text.counter("pelton_speech_underruns_total",
               "How often a stream was behind what a player that began with its first sound had "
               "played.",
               static_cast<double>(meter.underruns));
  text.gauge("pelton_speech_decodes_waiting",
             "Pieces of sound that wait to be decoded or are being decoded.",
             static_cast<double>(model.speech->queue.size()));
}

// Where several processes compute it; followers' are as of their last heartbeats.
void write_ranks(PrometheusText& text, const ServedModel& model) {
  if (model.ranks == nullptr) return;
  const std::vector<RankFigures> ranks = model.ranks();
  if (ranks.empty()) return;
  const auto write_as = [&](Type type, std::string_view name, std::string_view help,
                            const auto& value) {
    text.family(name, type, help);
    for (const RankFigures& rank : ranks) {
      text.sample({{"rank", std::to_string(rank.rank)}}, static_cast<double>(value(rank)));
    }
  };
  const auto write = [&](std::string_view name, std::string_view help, const auto& value) {
    write_as(Type::kCounter, name, help, value);
  };
  write("pelton_rank_exchanges_total", "Exchanges that a rank has taken part in.",
        [](const RankFigures& rank) { return rank.exchanges; });
  write("pelton_rank_received_bytes_total", "What it received in them.",
        [](const RankFigures& rank) { return rank.received_bytes; });
  write("pelton_rank_waiting_seconds_total", "Time in them that it waited for other ranks.",
        [](const RankFigures& rank) { return rank.waiting_seconds; });
  write("pelton_rank_copying_seconds_total", "And that it spent on the bytes.",
        [](const RankFigures& rank) { return rank.copying_seconds; });
  write("pelton_rank_expert_rows_total",
        "How often a token chose an expert of a rank's, where each expert is one rank's.",
        [](const RankFigures& rank) { return rank.expert_rows; });
  write_as(Type::kGauge, "pelton_rank_weight_bytes", "Bytes of weights that a rank computes with.",
           [](const RankFigures& rank) { return rank.weight_bytes; });
  write_as(Type::kGauge, "pelton_rank_cache_bytes",
           "Allocated for the keys and values of its heads, swap space included.",
           [](const RankFigures& rank) { return rank.cache_bytes; });
}

// vLLM's states: what sleeps here has given all its memory back; and how often and how long models
// were woken.
void write_sleep(PrometheusText& text, const ModelCatalogue::Table& table) {
  for (const ModelCatalogue::Entry& entry : table.entries) {
    const bool serves = entry.state == ModelCatalogue::State::kServing;
    if (!serves && !entry.is_dormant()) continue;
    text.set_common({{"model_name", entry.names.id}, {"engine", "0"}});
    text.family("vllm:engine_sleep_state", Type::kGauge,
                "Whether the model is awake, or asleep with its memory given back.");
    text.sample({{"sleep_state", "awake"}}, serves ? 1 : 0);
    text.sample({{"sleep_state", "weights_offloaded"}}, 0);
    text.sample({{"sleep_state", "discard_all"}}, serves ? 0 : 1);
    text.counter("pelton_model_wakes_total", "How often the model was woken.",
                 static_cast<double>(entry.wakes));
    text.counter("pelton_model_wake_seconds_total", "What that took, from being asked for.",
                 static_cast<double>(entry.wake_ns) * 1e-9);
  }
  text.set_common({});
}

void write_refusals(PrometheusText& text, const ModelCatalogue::Table& table) {
  using access::RefusalCounts;
  for (const ModelCatalogue::Entry& entry : table.entries) {
    if (entry.refusals == nullptr) continue;
    text.set_common({{"model_name", entry.names.id}, {"engine", "0"}});
    text.family("pelton_requests_refused_total", Type::kCounter,
                "Requests refused before anything was computed, by what was used up.");
    for (size_t i = 0; i < RefusalCounts::kNames.size(); ++i) {
      text.sample({{"by", RefusalCounts::kNames[i]}},
                  static_cast<double>(entry.refusals->of(static_cast<RefusalCounts::By>(i))));
    }
  }
  text.set_common({});
}

// In place of an engine's.
void write_transcriber(PrometheusText& text, const speech::Transcriber& transcriber) {
  using speech::Transcriber;
  const Transcriber::Stats stats = transcriber.stats();
  text.gauge("vllm:num_requests_running", "Requests with a slot.", stats.running);
  text.gauge("vllm:num_requests_waiting", "Requests that wait for a slot.", stats.waiting);
  text.gauge("pelton_live_transcriptions",
             "Connections over which sound is heard while it is said.", stats.live);
  text.family("pelton_transcriptions_total", Type::kCounter,
              "Files that were to be transcribed, by what became of that.");
  for (size_t i = 0; i < Transcriber::kEndNames.size(); ++i) {
    text.sample({{"end", Transcriber::kEndNames[i]}}, static_cast<double>(stats.ended[i]));
  }
  text.counter("pelton_audio_seconds_total", "Seconds of sound transcribed.", stats.audio_seconds);
  text.counter("pelton_transcription_busy_seconds_total",
               "Time that was spent on it: divided by the seconds of sound, the real-time factor.",
               stats.busy_seconds);
  text.counter("pelton_transcription_windows_total", "Windows of at most 30 s heard.",
               static_cast<double>(stats.windows));
  const auto histogram = [&](std::string_view name, std::string_view help,
                             const telemetry::Histogram& values) {
    text.family(name, Type::kHistogram, help);
    text.histogram({}, values);
  };
  histogram("pelton_transcription_audio_seconds", "How long the transcribed files are.",
            transcriber.audio_seconds());
  histogram("pelton_transcription_queue_seconds",
            "From a file's arrival until its first window was heard.", transcriber.queue_seconds());
  histogram("pelton_transcription_first_text_seconds",
            "From a file's arrival until its first words were there.",
            transcriber.first_text_seconds());
  histogram("pelton_transcription_speed", "Seconds of sound for each second from arrival to end.",
            transcriber.speed());
  histogram("pelton_live_text_seconds",
            "From when a window of live sound was there until its text was.",
            transcriber.live_text_seconds());
}

}  // namespace

std::string metrics_page(const Services& services) {
  PrometheusText text;
  for (const std::shared_ptr<const ServedModel>& model : services.catalogue.held()) {
    text.set_common({{"model_name", model->id}, {"engine", "0"}});
    if (model->transcriber != nullptr) {
      write_transcriber(text, *model->transcriber);
    } else {
      write_engine(text, model->engine);
      write_generations(text, model->state->meter);
      write_vectors(text, model->engine, model->state->meter.vectors());
    }
    write_load(text, *model);
    write_ranks(text, *model);
    write_speech(text, *model);
  }
  write_adapters(text, *services.catalogue.table());
  write_sleep(text, *services.catalogue.table());
  write_refusals(text, *services.catalogue.table());
  text.gauge("pelton_waiting_for_wake", "Requests that wait for a model that is being woken.",
             services.model_sleep.waiting());
  text.gauge("pelton_ready", "Whether new requests should be sent here, as /ready says.",
             ready_reply(services).status == 200 ? 1 : 0);
  write_reports(text, services.reporter.options());
  write_server(text, services);
  if (services.chains != nullptr) services.chains->figures().add_metrics(text);
  if (services.options.response_store != nullptr) {
    write_store(text, *services.options.response_store);
  }
  if (services.options.tools != nullptr) write_tools(text, *services.options.tools);
  access::add_audit_metrics(services.options.audit, text);
  write_process(text);
  return text.text();
}

}  // namespace pelton::server
