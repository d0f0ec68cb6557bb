// The verbs of the binary `pelton`, one file each. This folder is the only place where real parts
// are put together; what they say to the user is said here too.
#pragma once

#include <vector>

#include "cli/command_line.h"

namespace pelton::apps {

cli::Verb serve_verb();
cli::Verb gateway_verb();
cli::Verb autoscale_verb();
cli::Verb autoscale_recommend_verb();
cli::Verb quickstart_verb();
// fleet ls, show, drain, undrain, eject, restore: to a running gateway.
std::vector<cli::Verb> fleet_verbs();
cli::Verb fleet_init_verb();
cli::Verb fleet_stage_verb();
// fleet apply, diff, get, delete: of its configuration.
std::vector<cli::Verb> fleet_apply_verbs();
std::vector<cli::Verb> kv_verbs();
// weights serve, mirror, ls, manifest, erase.
std::vector<cli::Verb> weights_verbs();
// audit verify, show.
std::vector<cli::Verb> audit_verbs();
// chain check, graph, run.
std::vector<cli::Verb> chain_verbs();
cli::Verb availability_verb();
cli::Verb capacity_plan_verb();
cli::Verb chat_verb();
cli::Verb generate_verb();
cli::Verb run_batch_verb();
cli::Verb logits_verb();
cli::Verb embed_verb();
cli::Verb transcribe_verb();
cli::Verb snac_verb();
cli::Verb tokenize_verb();
cli::Verb grammar_verb();
cli::Verb inspect_verb();
cli::Verb pack_verb();
cli::Verb plan_verb();
cli::Verb calibrate_verb();
cli::Verb simulate_verb();
cli::Verb whatif_verb();
cli::Verb tune_verb();
cli::Verb verify_verb();
cli::Verb eval_verb();
cli::Verb perplexity_verb();
cli::Verb synth_verb();
cli::Verb bench_latency_verb();
cli::Verb bench_prefix_verb();
cli::Verb bench_serve_verb();
cli::Verb bench_throughput_verb();
cli::Verb bench_compare_verb();
cli::Verb bench_sweep_verb();
cli::Verb bench_history_verb();
cli::Verb bench_bandwidth_verb();
cli::Verb bench_exchange_verb();
cli::Verb bench_gateway_verb();
cli::Verb bench_kv_verb();
cli::Verb bench_speech_verb();
cli::Verb bench_transcribe_verb();
cli::Verb pull_verb();
cli::Verb ps_verb();
cli::Verb stop_verb();
cli::Verb list_verb();  // as cache list, by Ollama's name
cli::Verb rm_verb();    // as cache purge
cli::Verb cache_list_verb();
cli::Verb cache_purge_verb();
// `verbs`: all of them, these two included, once they run; outlives them.
cli::Verb completion_verb(const cli::CommandLine::Program& program,
                          const std::vector<cli::Verb>& verbs);
cli::Verb manual_verb(const cli::CommandLine::Program& program,
                      const std::vector<cli::Verb>& verbs);

}  // namespace pelton::apps
