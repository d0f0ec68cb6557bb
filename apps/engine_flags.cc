#include "apps/engine_flags.h"

#include <fmt/format.h>

#include "apps/loading.h"
#include "tensor/kv_block.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr std::string_view kDecodeFirst = "decode-first";

}  // namespace

std::vector<Flag> memory_flags() {
  return {
      kernels_flag(),
      threads_flag(),
      {.name = "--max-model-len",
       .value = "TOKENS",
       .help = "context length (prompt and output), as 32K; default the model's, as far as memory "
               "allows",
       .kind = Flag::Kind::kSize,
       .least = 1,
       .most = 1 << 30,
       .aliases = {"--context-length"}},
      {.name = "--kv-cache-memory",
       .value = "BYTES",
       .help = "size of the KV cache, as 4GiB; default half of the free memory",
       .kind = Flag::Kind::kSize,
       .least = 1},
      {.name = "--memory-utilization",
       .value = "SHARE",
       .help = "instead: the fraction of the memory limit (cgroup or RAM) for weights, workspace "
               "and KV cache together, as 0.9",
       .kind = Flag::Kind::kNumber,
       .least = 0.01,
       .most = 1,
       .aliases = {"--gpu-memory-utilization", "--mem-fraction-static"}},
      {.name = "--block-size",
       .value = "TOKENS",
       .help = "tokens in a KV block; the fast kernels read 16",
       .kind = Flag::Kind::kInteger,
       .default_text = "16",
       .choices = {"8", "16", "32", "64", "128"},
       .aliases = {"--page-size"}},
      kv_type_flag()};
}

Result<void> read_memory_flags(const cli::Arguments& arguments,
                               executor::LocalExecutor::Options& options) {
  options.kernels = arguments.text("--kernels");
  options.threads = static_cast<int>(arguments.integer("--threads"));
  options.block_tokens = static_cast<int>(arguments.integer("--block-size"));
  TRY_ASSIGN(options.kv_dtype, tensor::parse_kv_type(arguments.text("--kv-cache-dtype")));
  if (arguments.has("--max-model-len")) {
    options.context_tokens = static_cast<int>(arguments.integer("--max-model-len"));
  }
  if (arguments.has("--kv-cache-memory")) {
    options.kv_bytes = arguments.integer("--kv-cache-memory");
  }
  if (arguments.has("--memory-utilization")) {
    options.memory_utilization = arguments.number("--memory-utilization");
  }
  return {};
}

std::vector<Flag> batch_flags() {
  return {{.name = "--max-num-seqs",
           .value = "N",
           .help = "maximum number of sequences in a batch",
           .kind = Flag::Kind::kInteger,
           .default_text = "16",
           .least = 1,
           .most = 4096,
           .aliases = {"--max-rolling-batch-size", "--max-running-requests"}},
          {.name = "--max-num-batched-tokens",
           .value = "N",
           .help = "maximum number of tokens in a batch; longer prompts are prefilled in chunks. "
                   "An encoder's texts are never cut: without the flag it takes its longest text "
                   "at least, and more as memory has it",
           .kind = Flag::Kind::kSize,
           .default_text = "512",
           .least = 1,
           .most = 1 << 20,
           .aliases = {"--chunked-prefill-size", "--max-batch-tokens"}},
          {.name = "--swap-space",
           .value = "BYTES",
           .help = "host memory, as 2GiB, for the KV cache of preempted sequences, which are "
                   "otherwise recomputed, and for what the prefix cache evicts; a bare number is "
                   "GiB; 0: none",
           .kind = Flag::Kind::kSize,
           .default_text = "0",
           .bare_unit = double{1 << 30}},
          {.name = "--enable-prefix-caching",
           .help = "keep the KV cache of prompts for later ones with the same prefix",
           .kind = Flag::Kind::kSwitch,
           .default_text = "true",
           .negations = {"--no-enable-prefix-caching", "--no-prefix-caching",
                         "--disable-radix-cache"}}};
}

Result<void> read_batch_flags(const cli::Arguments& arguments,
                              node::LoadedModel::Options& options) {
  options.executor.sequences_max = static_cast<int>(arguments.integer("--max-num-seqs"));
  options.executor.batch_tokens_max =
      static_cast<int>(arguments.integer("--max-num-batched-tokens"));
  options.executor.batch_from_memory =
      arguments.source("--max-num-batched-tokens") == cli::Arguments::Source::kDefault;
  options.executor.swap_bytes = arguments.integer("--swap-space");
  constexpr int64_t kSwapBytesMin = int64_t{1} << 20;  // less is a slip of the unit
  if (options.executor.swap_bytes > 0 && options.executor.swap_bytes < kSwapBytesMin) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--swap-space {} is less than 1 MiB; give GiB, or a unit, as 2GiB",
                             arguments.text("--swap-space")),
                 "swap-space"};
  }
  options.executor.prefix_cache = arguments.has("--enable-prefix-caching");
  options.engine.prefix_cache = options.executor.prefix_cache;
  return {};
}

std::vector<Flag> queue_flags() {
  return {{.name = "--max-num-queued-reqs",
           .value = "N",
           .help = "maximum number of queued requests; more are answered 429",
           .kind = Flag::Kind::kInteger,
           .default_text = "1024",
           .least = 1,
           .most = 1 << 20},
          {.name = "--max-num-queued-tokens",
           .value = "N",
           .help = "maximum number of their prompt tokens, as 4M; more are answered 429",
           .kind = Flag::Kind::kSize,
           .default_text = "4M",
           .least = 1},
          {.name = "--max-queue-seconds",
           .value = "SECONDS",
           .help = "maximum time in the queue; a request that would wait longer is answered 429 at "
                   "once; 0: no bound",
           .kind = Flag::Kind::kNumber,
           .default_text = "600",
           .most = 86400},
          {.name = "--scheduling-policy",
           .value = "P",
           .help = "what a step schedules first: prefills, which may preempt, or decodes, which no "
                   "prefill preempts",
           .default_text = "prefill-first",
           .choices = {"prefill-first", std::string(kDecodeFirst)},
           // Ours knows priorities too, and who came first goes first among equals.
           .other_choices = {{"fcfs", "prefill-first"}, {"priority", "prefill-first"}}},
          {.name = "--prompt-tokens-beside-decodes",
           .value = "N",
           .help = "maximum number of prefill tokens in a step that also decodes, which bounds the "
                   "inter-token latency beside long prompts; 0: no bound but the step's; "
                   "decode-first without this flag: 64",
           .kind = Flag::Kind::kInteger,
           .default_text = "0",
           .most = 1 << 20},
          {.name = "--steps-in-flight",
           .value = "N",
           .help = "2: asynchronous scheduling: the next step is planned while a short one runs",
           .kind = Flag::Kind::kInteger,
           .default_text = "2",
           .least = 1,
           .most = 2}};
}

std::vector<Flag> prompt_flags() {
  return {
      {.name = "--pin-prefix",
       .value = "FILE",
       .help = "a prefix of prompts that is never evicted from the KV cache: a .json file with a "
               "chat request's messages (and tools), or the text of a completion prompt",
       .not_with = {{"--enable-prefix-caching", {"false"}}}},
      {.name = "--jump-ahead-tokens",
       .value = "N",
       .help = "jump-forward decoding: tokens that an output format leaves no choice about are "
               "emitted with the token before them, at most so many; 0: none",
       .kind = Flag::Kind::kInteger,
       .default_text = "16",
       .most = engine::kJumpTokensMax}};
}

Result<void> read_prompt_flags(const cli::Arguments& arguments,
                               node::LoadedModel::Options& loaded) {
  loaded.executor.jump_tokens_max = static_cast<int>(arguments.integer("--jump-ahead-tokens"));
  return {};
}

Result<void> read_queue_flags(const cli::Arguments& arguments, node::LoadedModel::Options& loaded) {
  engine::Engine::Options& options = loaded.engine;
  options.inbox_max = static_cast<int>(arguments.integer("--max-num-queued-reqs"));
  options.queued_tokens_max = arguments.integer("--max-num-queued-tokens");
  options.queue_wait_max_ns = static_cast<int64_t>(arguments.number("--max-queue-seconds") * 1e9);
  options.steps_in_flight_max = static_cast<int>(arguments.integer("--steps-in-flight"));
  engine::SchedulingPolicy& policy = options.policy;
  const int beside = static_cast<int>(arguments.integer("--prompt-tokens-beside-decodes"));
  policy.prompt_tokens_beside_decodes_max = beside;
  if (arguments.text("--scheduling-policy") == kDecodeFirst) {
    policy.order = engine::SchedulingPolicy::Order::kDecodeFirst;
    if (beside > 0) policy.decode_first_prompt_tokens = beside;
  }
  return {};
}

std::string engine_line(const engine::Engine::Options& options,
                        const engine::ExecutorCapacity& capacity) {
  const engine::SchedulingPolicy& policy = options.policy;
  const bool decode_first = policy.order == engine::SchedulingPolicy::Order::kDecodeFirst;
  int beside = policy.prompt_tokens_beside_decodes_max;
  if (decode_first && beside == 0) beside = policy.decode_first_prompt_tokens;
  return fmt::format(
      "engine: {} slots, {} tokens a step, {} of prompts beside decodes, {}, {} in flight; queue "
      "of "
      "{} requests and {} tokens; prefix cache {}",
      capacity.sequences_max, capacity.batch_tokens_max,
      beside == 0 ? "any" : std::to_string(beside), decode_first ? kDecodeFirst : "prefill-first",
      options.steps_in_flight_max, options.inbox_max, options.queued_tokens_max,
      options.prefix_cache ? "on" : "off");
}

}  // namespace pelton::apps
