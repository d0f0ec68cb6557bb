// pelton: one binary, one verb at a time.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "apps/argument_copy.h"
#include "apps/posture.h"
#include "apps/rank.h"
#include "apps/read_sound.h"
#include "apps/store_verbs.h"
#include "apps/verbs.h"
#include "apps/version.h"
#include "base/mapping_fault.h"
#include "base/refused_resource.h"
#include "cli/command_line.h"
#include "cli/exit_code.h"

namespace {

// Ctrl-C where no verb listens for it (cli::Interrupt): the exit code is the same as where one
// does.
void leave_at_once(int /*signal*/) {
  _exit(pelton::cli::kExitInterrupted);
}

// What ends a process unless it says otherwise, and means nothing here: others' "open your logs
// again", timers of whoever ran us before, a descriptor that became ready, a power supply. Who
// listens already (a profiler that was preloaded) goes on.
void ignore_meaningless_signals() {
  std::vector<int> signals = {SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM,
                              SIGPROF, SIGIO,   SIGPWR,  SIGSTKFLT};
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) signals.push_back(signal);
  for (const int signal : signals) {
    struct sigaction before {};
    const bool is_known = sigaction(signal, nullptr, &before) == 0;
    const bool is_default = (before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler == SIG_DFL;
    if (is_known && is_default) std::signal(signal, SIG_IGN);
  }
}

// Whatever thread the system has refused something, where nobody catches that: one sentence, as
// main() says it for its own.
[[noreturn]] void leave_without_resources() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::exception&) {
    std::fprintf(stderr, "pelton: %s\n", pelton::base::refused_resource().message.c_str());
    _exit(pelton::cli::kExitFailure);
  } catch (...) {
  }
  // One on its way, too, which ends where threads of a half-made object run: nothing here throws
  // but what was refused.
  if (std::uncaught_exceptions() > 0) {
    std::fprintf(stderr, "pelton: %s\n", pelton::base::refused_resource().message.c_str());
    _exit(pelton::cli::kExitFailure);
  }
  std::abort();
}

// The stack of the first thread grows when it is used; where no address space is left for that
// (`ulimit -v`) the process dies without a word, while an allocation that fails is an error. So it
// is there from the beginning.
[[gnu::noinline]] void take_stack() {
  constexpr size_t kBytes = 512 << 10;
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur < 4 * kBytes) return;
  [[maybe_unused]] volatile char bytes[kBytes];
  for (size_t at = 0; at < kBytes; at += 4096) bytes[kBytes - 1 - at] = 0;
}

// Beside those of flags; behind the first four those of the tests and tools, which run this
// binary.
std::vector<std::string> variables_read_elsewhere() {
  return {"PELTON_CACHE",          "PELTON_CUDA_LIBRARY",
          "PELTON_MPI_LIBRARY",    "PELTON_BENCH_LOCK_HELD",
          "PELTON_TEST*",          "PELTON_FULL",
          "PELTON_SEED*",          "PELTON_RECORD",
          "PELTON_FUZZ*",          "PELTON_DEVICE*",
          "PELTON_GPU_*",          "PELTON_BENCH_*",
          "PELTON_GOLDEN_*",       "PELTON_BINARY*",
          "PELTON_PROPERTY_SCALE", "PELTON_SOURCE_DIR",
          "PELTON_KERNELS",        "PELTON_ANSWERS_MODEL",
          "PELTON_VOCABULARIES",   "PELTON_CCACHE",
          "PELTON_SLOWNESS",       "PELTON_CUDA_ARCHITECTURES"};
}

// `described`: all of them, once they run; outlives them.
std::vector<pelton::cli::Verb> all_verbs(const pelton::cli::CommandLine::Program& program,
                                         const std::vector<pelton::cli::Verb>& described) {
  namespace apps = pelton::apps;
  std::vector<pelton::cli::Verb> verbs = {apps::serve_verb(),
                                          apps::gateway_verb(),
                                          apps::autoscale_verb(),
                                          apps::autoscale_recommend_verb(),
                                          apps::quickstart_verb(),
                                          apps::chat_verb(),
                                          apps::generate_verb(),
                                          apps::run_batch_verb(),
                                          apps::logits_verb(),
                                          apps::embed_verb(),
                                          apps::transcribe_verb(),
                                          apps::snac_verb(),
                                          apps::tokenize_verb(),
                                          apps::grammar_verb(),
                                          apps::inspect_verb(),
                                          apps::pack_verb(),
                                          apps::plan_verb(),
                                          apps::calibrate_verb(),
                                          apps::simulate_verb(),
                                          apps::whatif_verb(),
                                          apps::tune_verb(),
                                          apps::verify_verb(),
                                          apps::eval_verb(),
                                          apps::perplexity_verb(),
                                          apps::synth_verb(),
                                          apps::bench_latency_verb(),
                                          apps::bench_prefix_verb(),
                                          apps::bench_serve_verb(),
                                          apps::bench_throughput_verb(),
                                          apps::bench_compare_verb(),
                                          apps::bench_sweep_verb(),
                                          apps::bench_history_verb(),
                                          apps::bench_bandwidth_verb(),
                                          apps::bench_exchange_verb(),
                                          apps::bench_gateway_verb(),
                                          apps::bench_kv_verb(),
                                          apps::bench_speech_verb(),
                                          apps::bench_transcribe_verb(),
                                          apps::pull_verb(),
                                          apps::ps_verb(),
                                          apps::stop_verb(),
                                          apps::list_verb(),
                                          apps::rm_verb(),
                                          apps::cache_list_verb(),
                                          apps::cache_purge_verb(),
                                          apps::completion_verb(program, described),
                                          apps::manual_verb(program, described)};
  for (pelton::cli::Verb& verb : apps::fleet_verbs()) verbs.push_back(std::move(verb));
  for (pelton::cli::Verb& verb : apps::kv_verbs()) verbs.push_back(std::move(verb));
  for (pelton::cli::Verb& verb : apps::weights_verbs()) verbs.push_back(std::move(verb));
  for (pelton::cli::Verb& verb : apps::store_verbs()) verbs.push_back(std::move(verb));
  for (pelton::cli::Verb& verb : apps::audit_verbs()) verbs.push_back(std::move(verb));
  verbs.push_back(apps::posture_verb());
  verbs.push_back(apps::capacity_plan_verb());
  verbs.push_back(apps::availability_verb());
  for (pelton::cli::Verb& verb : apps::chain_verbs()) verbs.push_back(std::move(verb));
  return verbs;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace pelton;
  // A reader that goes away (| head) is an error of that write, not the death of the process.
  std::signal(SIGPIPE, SIG_IGN);
  // So is a file that may not grow any further (ulimit -f).
  std::signal(SIGXFSZ, SIG_IGN);
  ignore_meaningless_signals();
  std::set_terminate(leave_without_resources);
  take_stack();
  // A caller that ignores Ctrl-C on our behalf (nohup) is obeyed.
  if (std::signal(SIGINT, leave_at_once) == SIG_IGN) std::signal(SIGINT, SIG_IGN);
  // Weights are read where they lie; a file that is cut short meanwhile is named.
  base::end_on_mapping_fault(cli::kExitNoModel);
  if (apps::is_sound_child(argc, argv)) return apps::read_sound(argv);
  if (apps::is_rank(argc, argv)) return apps::run_rank(argc, argv);
  const cli::CommandLine::Program program{
      .name = "pelton",
      .version = apps::kVersion,
      .summary = "serves open-weight language models, on the machine you have",
      .examples = {"pelton serve openai/gpt-oss-20b", "pelton chat ./my-model",
                   "pelton inspect openai/gpt-oss-20b",
                   "pelton tokenize openai/gpt-oss-20b --text 'Hello, wheel.' --ids"},
      .variables = variables_read_elsewhere()};
  // Filled below: what describes every verb is among them. Outlives those, as it holds them.
  std::vector<cli::Verb> described;
  std::vector<cli::Verb> verbs = all_verbs(program, described);
  const cli::CommandLine command_line(program, std::move(verbs));
  described = command_line.verbs();
  apps::ArgumentCopy arguments(argc, argv);
  // A thread or memory that the system does not give us where nothing can do without.
  try {
    return command_line.run(arguments.count(), arguments.pointers());
  } catch (...) {
    std::fprintf(stderr, "pelton: %s\n", base::refused_resource().message.c_str());
  }
  // Other threads may run: nothing is torn down.
  std::fflush(nullptr);
  _exit(cli::kExitFailure);
}
