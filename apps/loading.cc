#include "apps/loading.h"

#include <random>

#include <fmt/format.h>

#include "apps/engine_flags.h"
#include "apps/model_fetch.h"
#include "apps/rank_flags.h"
#include "apps/speculation_flags.h"
#include "base/file.h"
#include "cli/phased_progress.h"
#include "cli/terminal.h"
#include "engine/modelled_executor.h"
#include "node/cache_folder.h"
#include "server/scripted_model.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr std::string_view kModelled = "modelled:";
constexpr size_t kScriptBytesMax = size_t{16} << 20;

// `clock` and `faults` outlive the executor.
Result<std::unique_ptr<engine::Executor>> make_modelled(const std::string& file,
                                                        const tokenizer::Tokenizer& tokenizer,
                                                        const base::Clock& clock,
                                                        const server::FaultInjection* faults) {
  const Result<std::string> script = base::read_file(file, kScriptBytesMax);
  if (!script) return Error{ErrorCode::kBadConfig, script.error().message, "executor"};
  Result<engine::ModelledExecutor::Options> options =
      server::scripted_executor(*script, file, tokenizer, clock, faults);
  if (!options.ok()) return Error{options.error().code, options.error().message, "executor"};
  return std::unique_ptr<engine::Executor>(
      std::make_unique<engine::ModelledExecutor>(*std::move(options)));
}

std::vector<Flag> chat_flags() {
  return {
      {.name = "--tokenizer",
       .value = "PLACE",
       .help = "a folder, a tokenizer.json or a hub id instead of the model's own tokenizer",
       .aliases = {"--tokenizer-path"},
       .may_be_empty = false},
      {.name = "--chat-template",
       .value = "FILE",
       .help = "a Jinja file instead of the model's own chat template"},
      {.name = "--reasoning-parser",
       .value = "P",
       .help = "how reasoning is marked in answers: think, mistral, plain, or vLLM's name for "
               "the same; else what the chat template writes"},
      {.name = "--tool-call-parser",
       .value = "P",
       .help = "how calls are written in answers: hermes, deepseek_r1, deepseek_v31, "
               "llama3_json, pythonic, mistral, mistral_args, qwen3_coder, phi4_mini, plain, or "
               "vLLM's name for the same; else what the chat template writes"}};
}

// MPI's ranks are processes that mpirun has started.
Result<parallel::TransportKind> rank_transport(const cli::Arguments& arguments) {
  const std::string& name = arguments.text("--rank-transport");
  if (name == "tcp") return parallel::TransportKind::kTcp;
  if (name != "mpi") return parallel::TransportKind::kShm;
  if (has_launcher(arguments)) return parallel::TransportKind::kMpi;
  return Error{ErrorCode::kInvalidArgument,
               "--rank-transport mpi: of ranks that a launcher has started: mpirun -n 2 pelton "
               "serve ... --rank-launcher mpi",
               "rank-transport"};
}

}  // namespace

std::vector<Flag> parallel_flags() {
  return {{.name = "--tensor-parallel-size",
           .value = "N",
           .help = "ranks, processes on this host that each hold and compute a part of the "
                   "model and answer as one does, bit for bit; --threads is of each",
           .kind = Flag::Kind::kInteger,
           .default_text = "1",
           .least = 1,
           .most = 64,
           .aliases = {"--tp", "--tp-size", "-tp"}},
          {.name = "--enable-expert-parallel",
           .help = "each expert is held and computed whole by one rank, instead of a part "
                   "of it by each; the answers are the same",
           .kind = Flag::Kind::kSwitch,
           .only_with = {{"--tensor-parallel-size"}}},
          {.name = "--rank-transport",
           .value = "T",
           .help = "how ranks hand each other numbers: shared memory, as they are on one "
                   "host (auto, shm); TCP, on one host on the loopback address (tcp); MPI, with "
                   "--rank-launcher mpi (mpi)",
           .default_text = "auto",
           .choices = {"auto", "shm", "tcp", "mpi"},
           .only_with = {{"--tensor-parallel-size"}}}};
}

Result<void> read_parallel_flags(const cli::Arguments& arguments, executor::RankOptions& ranks) {
  ranks.count = static_cast<int>(arguments.integer("--tensor-parallel-size"));
  ranks.deals_experts = arguments.has("--enable-expert-parallel");
  TRY_ASSIGN(ranks.transport, rank_transport(arguments));
  return {};
}

Flag kernels_flag() {
  return {.name = "--kernels",
          .value = "K",
          .help = "compute kernels",
          .default_text = "auto",
          .choices = {"auto", "reference", "avx512", "avx2", "neon"}};
}

Flag kv_type_flag() {
  return {
      .name = "--kv-cache-dtype",
      .value = "TYPE",
      .help =
          "data type of the KV cache; auto is what the kernels prefer, f16 for the fast ones and "
          "on a GPU (which also has bf16 and fp8); fp8 and int8 take half the memory and are "
          "less exact, fp8 most",
      .default_text = "auto",
      .choices = {"auto", "f16", "bf16", "fp8", "int8"},
      .other_choices = {{"fp8_e4m3", "fp8"}, {"bfloat16", "bf16"}, {"float16", "f16"}}};
}

Flag threads_flag() {
  return {.name = "--threads",
          .value = "T",
          .help = "compute threads; 0: one for each usable processor",
          .kind = Flag::Kind::kInteger,
          .default_text = "0",
          .most = 1024};
}

Flag load_mode_flag() {
  return {
      .name = "--load-mode",
      .value = "MODE",
      .help =
          "weights as mapped files (mmap), these locked into memory, or read into memory of the "
          "process; auto locks where that is allowed and leaves others enough, and moves them into "
          "huge pages while it serves; else it maps",
      .default_text = "auto",
      .choices = {"auto", "mmap", "lock", "read"}};
}

Flag unpacked_weights_flag() {
  return {.name = "--weights",
          .value = "W",
          .help =
              "large bf16 matrices held exactly in 12 bits, as serve does (shipped), or all as "
              "mapped files; packed ones are those of a folder that pelton pack made",
          .default_text = "shipped",
          .choices = {"shipped", "mapped"}};
}

std::vector<Flag> model_flags() {
  std::vector<Flag> flags = memory_flags();
  flags.push_back({.name = "--weights",
                   .value = "W",
                   .help =
                       "the bits as shipped, large bf16 matrices held exactly in 12 bits "
                       "(shipped), or all as mapped files, shared with other processes (mapped); "
                       "or, of models with MXFP4 experts and dense ones, packed, which is faster: "
                       "attention and dense MLPs in 8 bits and the head in 4 with likely tokens "
                       "exact (int8), or so if that loses little (auto)",
                   .default_text = "shipped",
                   .choices = {"shipped", "mapped", "int8", "auto"}});
  flags.push_back({.name = "--weights-cache",
                   .value = "DIR",
                   .help = "where packed weights, and those of --weights-from, are kept for the "
                           "next start, some gigabytes of each model; none: they are packed in "
                           "memory, or fetched, at each start",
                   .default_text = "none",
                   .may_be_empty = false,
                   .only_with = {{"--weights", {"int8", "auto"}}, {"--weights-from"}}});
  flags.push_back(load_mode_flag());
  flags.push_back(
      {.name = "--device",
       .value = "D",
       .help = "the CPU, until GPUs have been tried (auto); the CPU; or a GPU, without falling "
               "back",
       .default_text = "auto",
       .choices = {"auto", "cpu", "cuda"}});
  for (Flag& flag : parallel_flags()) flags.push_back(std::move(flag));
  flags.push_back({.name = "--kernel-choice",
                   .value = "C",
                   .help =
                       "on a GPU, which config of a kernel computes how many rows: measured at the "
                       "first start and kept (auto), measured now, or by constants; plain: by "
                       "constants and without wgmma; persistent: by constants, and steps of few "
                       "rows in one persistent kernel",
                   .default_text = "auto",
                   .choices = {"auto", "measure", "default", "plain", "persistent"},
                   .only_with = {{"--device", {"cuda"}}}});
  flags.push_back({.name = "--revision",
                   .value = "R",
                   .help = "of a hub id: a branch, tag or commit other than main",
                   .may_be_empty = false});
  for (Flag& flag : chat_flags()) flags.push_back(std::move(flag));
  flags.push_back({.name = "--executor",
                   .value = "E",
                   .help = "local, or modelled:FILE for scripted answers that nothing computes",
                   .default_text = "local"});
  flags.push_back(speculation_flag());
  return flags;
}

MakeExecutor modelled_executor(const cli::Arguments& arguments, const base::Clock& clock,
                               const server::FaultInjection* faults) {
  const std::string& executor = arguments.text("--executor");
  if (!executor.starts_with(kModelled)) return {};
  return [file = executor.substr(kModelled.size()), &clock,
          faults](const tokenizer::Tokenizer& tokenizer) {
    return make_modelled(file, tokenizer, clock, faults);
  };
}

Result<node::LoadedModel::Options> model_options(const cli::Arguments& arguments,
                                                 const base::Clock& clock) {
  node::LoadedModel::Options options;
  TRY(read_memory_flags(arguments, options.executor));
  options.device = arguments.text("--device");
  if (arguments.has("--chat-template") && arguments.text("--chat-template").empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "--chat-template names a file, found nothing; leave it out for the model's own",
                 "chat-template"};
  }
  TRY(read_parallel_flags(arguments, options.executor.ranks));
  options.executor.ranks.threads = options.executor.threads;
  options.revision = arguments.text("--revision");
  options.chat = {.tokenizer = arguments.text("--tokenizer"),
                  .template_file = arguments.text("--chat-template"),
                  .reasoning_parser = arguments.text("--reasoning-parser"),
                  .tool_call_parser = arguments.text("--tool-call-parser")};
  options.executor.kernel_choice = arguments.text("--kernel-choice");
  options.executor.kernel_choice_folder = node::cache_folder("kernels");
  TRY_ASSIGN(options.load_mode, checkpoint::parse_load_mode(arguments.text("--load-mode")));
  const std::string& weights = arguments.text("--weights");
  if (options.device == "cuda" && weights != "shipped") {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--weights {} is of the CPU; a GPU computes with the bits that are "
                             "shipped, so --device cuda takes --weights shipped only",
                             weights),
                 "weights"};
  }
  if (weights == "mapped") {
    options.compact_from.reset();
  } else if (weights != "shipped") {
    TRY_ASSIGN(options.weights, models::parse_weight_choice(weights));
    const std::string& cache = arguments.text("--weights-cache");
    if (cache != "none") options.packed_cache = cache;
  }
  const std::string& executor = arguments.text("--executor");
  options.make_executor = modelled_executor(arguments, clock, nullptr);
  if (!options.make_executor && executor != "local") {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--executor is 'local' or 'modelled:FILE', not '{}'", executor),
                 "executor"};
  }
  if (arguments.has("--speculative-config")) {
    if (options.make_executor) {
      return Error{ErrorCode::kInvalidArgument,
                   "--speculative-config needs a model that computes; --executor modelled has none",
                   "speculative-config"};
    }
    TRY(read_speculation_flag(arguments, options.executor));
    options.engine.adaptive_drafts = options.executor.speculation.adaptive;
  }
  return options;
}

Result<std::unique_ptr<node::LoadedModel>> load_model(const std::string& model,
                                                      node::LoadedModel::Options options,
                                                      const Stopped& stopped,
                                                      const base::Clock& clock, base::Log& log) {
  TRY(fetch_if_missing(model, options.revision, stopped, clock, log));
  // Long work is never silent, whatever the log leaves out.
  cli::PhasedProgress progress(clock, [&log](const std::string& line) {
    if (log.enabled(base::LogLevel::kInfo)) {
      log.info(line);
    } else {
      fmt::print(stderr, "{}\n", line);
    }
  });
  options.progress = [&](std::string_view what, int64_t done, int64_t total) {
    progress.update(what, done, total);
    return !stopped();
  };
  return node::LoadedModel::load(model, options, clock, log);
}

std::vector<Flag> sampling_flags(const std::string& temperature) {
  std::vector<Flag> flags = {
      {.name = "--temperature",
       .value = "T",
       .help = "0: greedy",
       .kind = Flag::Kind::kNumber,
       .default_text = temperature,
       .most = 100},
      {.name = "--top-p",
       .value = "P",
       .help = "nucleus: the smallest set of tokens with cumulative probability P",
       .kind = Flag::Kind::kNumber,
       .default_text = "1",
       .least = 1e-6,
       .most = 1},
      {.name = "--top-k",
       .value = "K",
       .help = "the K tokens with the highest probability; 0: all",
       .kind = Flag::Kind::kInteger,
       .default_text = "0",
       .most = 1 << 30},
      {.name = "--min-p",
       .value = "P",
       .help = "drop tokens below P times the top token's probability",
       .kind = Flag::Kind::kNumber,
       .default_text = "0",
       .most = 1},
      {.name = "--seed",
       .value = "S",
       .help = "of the sampling; default another one each time",
       .kind = Flag::Kind::kInteger}};
  for (Flag& flag : flags) {
    if (flag.name != "--temperature") flag.not_with = {{"--temperature", {"0"}}};
  }
  return flags;
}

uint64_t system_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

request::SamplingParams sampling_params(const cli::Arguments& arguments) {
  request::SamplingParams params;
  params.temperature = static_cast<float>(arguments.number("--temperature"));
  params.top_p = static_cast<float>(arguments.number("--top-p"));
  params.top_k = static_cast<int>(arguments.integer("--top-k"));
  params.min_p = static_cast<float>(arguments.number("--min-p"));
  params.seed =
      arguments.has("--seed") ? static_cast<uint64_t>(arguments.integer("--seed")) : system_seed();
  return params;
}

}  // namespace pelton::apps
