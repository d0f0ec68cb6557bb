#include "apps/serve_foreign_flags.h"

#include <string_view>

#include "base/split.h"

namespace pelton::apps {
namespace {

enum Kind { kSwitch, kValue, kList, kPositional };

struct Row {
  std::string_view names;
  Kind kind;
  // Values with which nothing would be other than it is, apart by blanks; "*": any. Without one it
  // is refused.
  std::string_view taken;
  std::string_view why;
};

constexpr Row kRows[] = {
    {"--model --model-path", kPositional, "", ""},
    {"--enable-auto-tool-choice", kSwitch, "*",
     "tools may be called wherever a request offers them"},
    {"--trust-remote-code", kSwitch, "*", "no code that comes with a model is ever run"},
    {"--enforce-eager --no-enforce-eager", kSwitch, "*", "there are no CUDA graphs to do without"},
    {"--async-scheduling --no-async-scheduling", kSwitch, "*",
     "--steps-in-flight says whether a step is planned beside another"},
    {"--disable-log-requests --no-enable-log-requests --disable-log-stats", kSwitch, "*",
     "requests are not logged unless --access-log asks"},
    {"--disable-uvicorn-access-log", kSwitch, "*",
     "there is no access log unless --access-log asks"},
    {"--uvicorn-log-level", kValue, "*", "--log-level is for all of the server"},
    {"--enable-log-requests --log-requests", kSwitch, "",
     "--access-log FILE writes a line for each request"},
    {"--enable-chunked-prefill", kSwitch, "*", "prompts are always computed in chunks"},
    {"--no-enable-chunked-prefill", kSwitch, "",
     "prompts are always computed in chunks; --max-num-batched-tokens is their size"},
    {"--enable-prompt-tokens-details --enable-cache-report", kSwitch, "*",
     "usage always says how many tokens were cached"},
    {"--enable-server-load-tracking", kSwitch, "*", "GET /load always answers"},
    {"--enable-metrics", kSwitch, "*", "GET /metrics always answers"},
    {"--enable-request-id-headers", kSwitch, "*", "every answer has x-request-id"},
    {"--enable-force-include-usage", kSwitch, "", "a request asks by stream_options.include_usage"},
    {"--return-tokens-as-token-ids", kSwitch, "", "a request asks by return_tokens_as_token_ids"},
    {"--tokenizer-mode", kValue, "auto hf slow", "the tokenizer is the model's"},
    {"--tokenizer-revision --code-revision --hf-config-path", kValue, "",
     "a model's files are of one revision, see --revision"},
    {"--skip-tokenizer-init", kSwitch, "", "requests are text"},
    {"--load-format", kValue, "auto safetensors",
     "a model's files say how they are read, see --load-mode"},
    {"--config-format", kValue, "auto hf", "a model's files say what they are"},
    {"--dtype", kValue, "auto bfloat16 bf16",
     "weights keep the type that they are shipped in, see --weights"},
    {"--quantization -q", kValue, "mxfp4",
     "weights keep the format that they are shipped in, see --weights"},
    {"--tensor-parallel-degree", kValue, "1 max",
     "--tensor-parallel-size says how many processes compute a model"},
    {"--rolling-batch", kValue, "*", "requests are always batched as they come"},
    {"--max-input-len --max-output-len", kValue, "*",
     "--max-model-len bounds a prompt and its answer together, max_tokens an answer"},
    {"--pipeline-parallel-size -pp --pp --pp-size", kValue, "1",
     "every rank computes every layer, see --tensor-parallel-size"},
    {"--data-parallel-size -dp --dp --dp-size", kValue, "1",
     "start several servers behind a balancer"},
    {"--decode-context-parallel-size -dcp --prefill-context-parallel-size", kValue, "1",
     "a model is computed by this one process"},
    {"--expert-parallel-size --ep-size --ep", kValue, "1",
     "--enable-expert-parallel deals experts out among the ranks of --tensor-parallel-size"},
    {"--dist-init-addr --dist-timeout", kValue, "",
     "--master-addr says where ranks meet, --rank-wait-seconds how long they wait"},
    {"--data-parallel-address --data-parallel-rank", kValue, "",
     "start several servers behind a balancer"},
    {"--distributed-executor-backend", kValue, "mp uni",
     "ranks are processes, see --tensor-parallel-size and --rank-launcher"},
    {"--disable-custom-all-reduce --disable-cascade-attn --enable-p2p-check "
     "--disable-frontend-multiprocessing",
     kSwitch, "*", "there is one process"},
    {"--api-server-count", kValue, "1", "--http-threads says how many threads read and write"},
    {"--max-parallel-loading-workers", kValue, "*", "weights are mapped, see --load-mode"},
    {"--compilation-config -O --max-seq-len-to-capture --cuda-graph-max-bs --torch-compile-max-bs",
     kValue, "*", "nothing is compiled at the start"},
    {"-O0 -O1 -O2 -O3", kSwitch, "*", "nothing is compiled at the start"},
    {"--cuda-graph-sizes --cudagraph-capture-sizes --cuda-graph-bs", kList, "*",
     "nothing is compiled at the start"},
    {"--disable-cuda-graph --enable-torch-compile --disable-overlap-schedule --skip-server-warmup "
     "--enable-mixed-chunk",
     kSwitch, "*", "nothing is compiled or captured at the start"},
    {"--attention-backend --sampling-backend --grammar-backend --moe-backend --moe-runner-backend "
     "--mm-attention-backend",
     kValue, "*", "--kernels says which kernels compute"},
    {"--guided-decoding-backend", kValue, "*", "there is one way to follow a grammar"},
    {"--preemption-mode", kValue, "*",
     "--swap-space says whether preempted requests are copied out"},
    {"--schedule-policy", kValue, "*", "--scheduling-policy says who comes first"},
    {"--max-prefill-tokens", kValue, "*", "--max-num-batched-tokens bounds a step"},
    {"--decode-log-interval --max-log-len --file-storage-path", kValue, "*",
     "nothing of the kind is written"},
    {"--limit-mm-per-prompt --mm-processor-kwargs --media-io-kwargs", kList, "*",
     "models read text only"},
    {"--chat-template-content-format", kValue, "auto string openai", "both ways are read"},
    {"--response-role", kValue, "assistant", "answers are the assistant's"},
    {"--task --runner --convert", kValue, "auto generate", "one model answers and embeds"},
    {"--use-v2-block-manager", kSwitch, "*", "there is one"},
    {"--num-scheduler-steps", kValue, "1", "each step is planned; see --speculative-config"},
    {"--stream-interval", kValue, "1", "every token is sent when it is there"},
    {"--max-num-partial-prefills", kValue, "1",
     "--prompt-tokens-beside-decodes bounds prompts beside answers"},
    {"--long-prefill-token-threshold --max-long-partial-prefills", kValue, "0 1",
     "--prompt-tokens-beside-decodes bounds prompts beside answers"},
    {"--cpu-offload-gb", kValue, "0", "weights are in this machine's memory"},
    {"--num-gpu-blocks-override --max-total-tokens", kValue, "",
     "--kv-cache-memory says how large the KV cache is"},
    {"--calculate-kv-scales", kSwitch, "", "--kv-cache-dtype fp8 needs no scales"},
    {"--disable-sliding-window", kSwitch, "", "a model attends as it was trained to"},
    {"--hf-overrides --rope-scaling --rope-theta --json-model-override-args "
     "--override-generation-config",
     kValue, "", "a model is served as it is"},
    {"--hf-token", kValue, "", "HF_TOKEN in the environment is read"},
    {"--lora-dtype", kValue, "auto", "adapters keep the type that they are saved in"},
    {"--lora-extra-vocab-size", kValue, "0", "adapters bring no tokens"},
    {"--lora-backend", kValue, "*", "--kernels says which kernels compute"},
    {"--default-mm-loras", kList, "", "models read text only"},
    {"--speculative-algorithm --speculative-draft-model-path --speculative-num-steps", kValue, "",
     "--speculative-config says how tokens are drafted"},
    {"--speculative-num-draft-tokens --speculative-eagle-topk", kValue, "",
     "--speculative-config says how tokens are drafted"},
    {"--kv-transfer-config --disaggregation-mode", kValue, "",
     "prompts and answers are computed by one server"},
    {"--kv-events-config", kValue, "",
     "--kv-events-endpoint tcp://HOST:PORT publishes what the prefix cache holds"},
    {"--middleware", kValue, "", "no code is loaded"},
    {"--allowed-origins", kValue, "", "--cors-origin ORIGIN says which pages may ask"},
    {"--allowed-methods --allowed-headers --allow-credentials", kValue, "",
     "--cors-origin ORIGIN says which pages may ask"},
    {"--ssl-ca-certs --ssl-cert-reqs", kValue, "",
     "--tls-client-ca FILE asks clients for a certificate"},
    {"--enable-ssl-refresh", kSwitch, "*", "certificates are read anew at SIGHUP"},
    {"--watchdog-timeout", kValue, "", "--watchdog-seconds says when a step is given up"},
    {"--is-embedding", kSwitch, "*", "/v1/embeddings is always served"},
    {"--allow-auto-truncate", kSwitch, "", "a prompt that is too long is refused"},
};

std::vector<std::string> split_at_blanks(std::string_view text) {
  const auto words = base::split_skipping_empty(text, ' ');
  return {words.begin(), words.end()};
}

}  // namespace

std::vector<cli::ForeignFlag> serve_foreign_flags() {
  std::vector<cli::ForeignFlag> flags;
  for (const Row& row : kRows) {
    flags.push_back({.names = split_at_blanks(row.names),
                     .takes_value = row.kind != kSwitch,
                     .takes_list = row.kind == kList,
                     .is_positional = row.kind == kPositional,
                     .taken = split_at_blanks(row.taken),
                     .why = std::string(row.why)});
  }
  return flags;
}

}  // namespace pelton::apps
