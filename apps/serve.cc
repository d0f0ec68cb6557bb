// pelton serve: models behind the OpenAI API, until SIGTERM or Ctrl-C.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/admin_listener.h"
#include "apps/audit_flags.h"
#include "apps/batches_flags.h"
#include "apps/chains_flags.h"
#include "apps/connection_bound.h"
#include "apps/console_flags.h"
#include "apps/engine_flags.h"
#include "apps/fleet_listener.h"
#include "apps/input.h"
#include "apps/kv_disk_flags.h"
#include "apps/life_cycle.h"
#include "apps/listener_flags.h"
#include "apps/loading.h"
#include "apps/lora_flags.h"
#include "apps/model_fetch.h"
#include "apps/model_host.h"
#include "apps/process_guard.h"
#include "apps/rank_flags.h"
#include "apps/rank_restarts.h"
#include "apps/reporting.h"
#include "apps/response_store_flags.h"
#include "apps/sampling_defaults.h"
#include "apps/serve_foreign_flags.h"
#include "apps/serve_worker.h"
#include "apps/sleep_flags.h"
#include "apps/speech_flags.h"
#include "apps/tool_flags.h"
#include "apps/transcription_flags.h"
#include "apps/verbs.h"
#include "apps/version.h"
#include "apps/weights_from.h"
#include "base/digest.h"
#include "base/heap_trim.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "net/http_server.h"
#include "server/server.h"

namespace pelton::apps {
namespace {

using cli::Flag;

using Workers = std::vector<std::unique_ptr<ServeWorker>>;

constexpr std::chrono::seconds kCloseGrace{5};

// A few lines, for people only: on a terminal.
void print_banner(const std::vector<std::string>& models, const std::string& url, bool console) {
  const cli::Terminal terminal(stderr);
  if (!terminal.interactive()) return;
  fmt::print(stderr, "Pelton {} serves on {}\n", kVersion, terminal.bold(url));
  for (const std::string& line : models) fmt::print(stderr, "  {}\n", line);
  fmt::print(stderr,
             "  curl {}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
             "    -d '{{\"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}'\n",
             url);
  if (console && url.starts_with("http")) fmt::print(stderr, "  in a browser: {}/console\n", url);
}

// On stdout, for whoever started us.
void print_addresses(const Workers& workers, base::Log& log) {
  std::string lines;
  for (const auto& worker : workers) lines += worker->lines();
  const Result<void> written = write_output(lines);
  if (!written) log.warning(written.error().message);  // nobody reads it; serving matters more
}

// Who is asked to stop while the model is loaded has nothing to drain: it has stopped, as asked.
Result<void> not_loaded(const Error& error, const Workers& workers, const cli::Interrupt& interrupt,
                        base::Log& log) {
  for (const auto& worker : workers) worker->close(std::chrono::milliseconds(0));
  if (error.code != ErrorCode::kCancelled || !interrupt.pending()) return error;
  log.info("stopped while the model was being loaded");
  return {};
}

std::optional<uint64_t> sampling_seed(const cli::Arguments& arguments) {
  if (!arguments.has("--seed")) return std::nullopt;
  return static_cast<uint64_t>(arguments.integer("--seed"));
}

// As the Hugging Face tools have it, for all that looks there; no other thread runs yet.
void use_hub_flags(const cli::Arguments& arguments) {
  if (arguments.has("--download-dir")) {
    ::setenv("HF_HUB_CACHE", arguments.text("--download-dir").c_str(), 1);
  }
  if (arguments.has("--offline")) ::setenv("HF_HUB_OFFLINE", "1", 1);
}

Result<void> check_root_path(const cli::Arguments& arguments) {
  const std::string& path = arguments.text("--root-path");
  const bool fits = path.empty() || (path.size() > 1 && path.starts_with('/') &&
                                     !path.ends_with('/') && path.find("//") == std::string::npos);
  if (fits) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--root-path is like /models/one, not '{}'", path), "root-path"};
}

// What the flags alone say of it.
Result<server::Server::Options> server_options_of(const cli::Arguments& arguments) {
  TRY(check_root_path(arguments));
  server::Server::Options options;
  TRY_ASSIGN(const std::string kv_secret, kv_disk_secret(arguments));
  TRY_ASSIGN(options.salt_secret, fleet_salt_secret(arguments));
  if (options.salt_secret.empty() && !kv_secret.empty()) {
    options.salt_secret = base::hmac_sha256(kv_secret, "tenants");
  }
  options.version = kVersion;
  options.sampled_turn_tokens_max = arguments.integer("--sampled-turn-tokens");
  options.sampling_seed = sampling_seed(arguments);
  options.root_path = arguments.text("--root-path");
  options.sleep_mode = arguments.has("--enable-sleep-mode");
  options.lora_updating = arguments.has("--allow-runtime-lora-updating");
  options.keeps_blocks = arguments.has("--kv-disk");
  options.console = has_console(arguments);
  return options;
}

// The lines of the first: they are alike.
Result<std::vector<std::string>> load_all(const std::vector<node::NamedModel>& named,
                                          const Workers& workers) {
  std::vector<std::string> lines;
  for (const auto& worker : workers) {
    TRY_ASSIGN(std::vector<std::string> loaded, worker->load(named));
    if (lines.empty()) lines = std::move(loaded);
  }
  return lines;
}

// Running answers have so long, all together.
void drain(const Workers& workers, const server::ToolServers* tools, int64_t ms,
           const base::Clock& clock) {
  const int64_t end_ns = clock.now_ns() + ms * 1'000'000;
  const auto left_ms = [&] { return std::max<int64_t>(0, end_ns - clock.now_ns()) / 1'000'000; };
  for (const auto& worker : workers) worker->refuse();
  if (tools != nullptr) tools->drain(std::chrono::milliseconds(left_ms()));
  for (const auto& worker : workers) worker->drain(left_ms());
  // Whoever reads slowly has the rest of the time to read what there is.
  const std::chrono::milliseconds grace = kCloseGrace + std::chrono::milliseconds(left_ms());
  for (const auto& worker : workers) worker->close(grace);
}

Result<void> check_flags(const cli::Arguments& arguments, const access::ApiKeys& keys) {
  TRY(check_exposure(arguments, keys));
  TRY(check_date(arguments));
  return check_replicas(arguments);
}

net::HttpServer::Options http_options_of(const cli::Arguments& arguments,
                                         const net::AllowedHosts& hosts,
                                         const ConnectionBound& connections,
                                         const std::shared_ptr<net::TlsIdentity>& tls) {
  const std::string& host = arguments.text("--host");
  return {.address = host,
          .threads = http_threads(arguments),
          .connections_max = connections.http,
          .hosts = hosts.at(host),
          .tls = tls,
          .http2 = arguments.text("--http2") == "on"};
}

// With its first line, if one is kept.
Result<std::unique_ptr<access::AuditLog>> begin_audit(const cli::Arguments& arguments,
                                                      const base::Clock& clock, base::Log& log) {
  TRY_ASSIGN(std::unique_ptr<access::AuditLog> audit, open_audit(arguments, clock, log));
  if (audit == nullptr) return audit;
  audit->note({.what = "start",
               .target = fmt::format("{}", fmt::join(arguments.list("MODEL"), " ")),
               .result = fmt::format("version {}", kVersion)});
  return audit;
}

void warn_of_exposure(const std::string& host, const access::ApiKeys& keys, base::Log& log) {
  if (is_local(host) || !keys.empty()) return;
  log.warning("anyone who reaches this machine can use the model; --api-key asks for a key");
}

Result<void> serve(const cli::Arguments& arguments) {
  const base::SystemClock clock;
  const Result<node::LoadedModel::Options> options = ModelHost::options_of(arguments, clock);
  if (!options.ok()) return options.error();
  TRY_ASSIGN(const std::vector<node::NamedModel> named, named_models(arguments));
  TRY_ASSIGN(ListenerKeys listener, listener_keys(arguments));
  TRY(check_flags(arguments, listener.all));
  access::AdminGate gate(admin_keys(arguments));
  gate.set_keys(std::move(listener.operators));
  TRY_ASSIGN(const access::CorsOrigins cors, cors_origins(arguments));
  TRY_ASSIGN(const net::AllowedHosts hosts, allowed_hosts(arguments));
  TRY_ASSIGN(const std::string reasoning_secret, reasoning_key(arguments));
  TRY_ASSIGN(const std::shared_ptr<net::TlsIdentity> tls, tls_identity(arguments));
  TRY_ASSIGN(const std::optional<int64_t> sleep_after, sleep_after_ns(arguments));
  base::Log log(clock, {.level = log_level(arguments), .json = arguments.has("--log-json")});
  warn_of_root(log);
  const cli::Interrupt interrupt(cli::Interrupt::HangUp::kReported);
  guard_process(arguments, log);
  const base::HeapTrim heap({});

  // The port first: a taken one should be reported before a large model is read.
  TRY_ASSIGN(const std::unique_ptr<store::ResponseStore> responses,
             open_response_store(arguments, clock, log));
  TRY_ASSIGN(const std::unique_ptr<server::ToolServers> tools, open_tool_servers(arguments, log));
  Reporting reporting;
  TRY(reporting.open(arguments, log));
  TRY_ASSIGN(server::Server::Options server_options, server_options_of(arguments));
  server_options.keys = listener.all;
  server_options.cors = cors;
  server_options.reasoning_key = reasoning_secret;
  server_options.response_store = responses.get();
  server_options.tools = tools.get();
  server_options.reports = reporting.options();
  const ConnectionBound connections = connection_bound(arguments);
  const net::HttpServer::Options http_options = http_options_of(arguments, hosts, connections, tls);
  TRY_ASSIGN(const std::unique_ptr<access::AuditLog> audit, begin_audit(arguments, clock, log));
  server_options.audit = audit.get();
  TRY_ASSIGN(const std::unique_ptr<WeightsFrom> weights, WeightsFrom::open(arguments, clock, log));
  node::TokenizerCache tokenizers;
  Workers workers;
  for (int i = 0; i < arguments.integer("--replicas"); ++i) {
    workers.push_back(
        std::make_unique<ServeWorker>(ServeWorker::Parts{.arguments = arguments,
                                                         .interrupt = interrupt,
                                                         .server = server_options,
                                                         .http = http_options,
                                                         .tls = tls,
                                                         .grpc_connections_max = connections.grpc,
                                                         .tokenizers = tokenizers,
                                                         .sleep_after_ns = sleep_after,
                                                         .weights = weights.get(),
                                                         .audit = audit.get(),
                                                         .gate = gate,
                                                         .clock = clock,
                                                         .log = log},
                                      i));
    TRY(workers.back()->open());
  }
  const Result<std::vector<std::string>> loaded = load_all(named, workers);
  if (!loaded.ok()) return not_loaded(loaded.error(), workers, interrupt, log);
  warn_of_exposure(arguments.text("--host"), listener.all, log);
  print_banner(*loaded, workers.front()->url(), server_options.console);
  LifeCycle life({arguments, interrupt, workers, reporting, tls, log, gate, audit.get()});
  print_addresses(workers, log);
  life.wait_for_the_end();
  drain(workers, tools.get(), life.drain_ms(), clock);
  if (audit != nullptr) audit->note({.what = "stop"});
  for (const auto& worker : workers) TRY(worker->fate());
  return {};
}

// A rank above 0 computes for its leader instead.
Result<void> run_serve(const cli::Arguments& arguments) {
  use_hub_flags(arguments);
  TRY_ASSIGN(const std::vector<node::NamedModel> named, named_models(arguments));
  const base::SystemClock clock;
  base::Log log(clock, {.level = log_level(arguments), .json = arguments.has("--log-json")});
  TRY(start_anew_when_lost(arguments, log));
  TRY_ASSIGN(const std::optional<StartedRank> started, started_rank(arguments));
  TRY_ASSIGN(const bool followed, follow_leader(arguments, named.front().model, started, log));
  return followed ? Result<void>() : serve(arguments);
}

// Of the server, whichever model answers.
std::vector<Flag> request_flags() {
  std::vector<Flag> flags = chains_flags();
  const Flag own[] = {
      {.name = "--seed",
       .value = "S",
       .help = "base of the seeds of requests that give none, in the order in which they "
               "come; default: random at each start",
       .kind = Flag::Kind::kInteger,
       .aliases = {"--random-seed"}},
      {.name = "--root-path",
       .value = "PATH",
       .help = "requests may come with this before their paths, as a proxy sends them on"},
      {.name = "--download-dir",
       .value = "DIR",
       .help = "the hub cache that models are looked for in, and fetched to; default "
               "$HF_HUB_CACHE",
       .may_be_empty = false},
      {.name = "--embed-share",
       .value = "SHARE",
       .help = "what encoders (embeddings, rerankers) have of the processors' time while models "
               "that generate are at work, too",
       .kind = Flag::Kind::kNumber,
       .default_text = "0.5",
       .least = 0.01,
       .most = 0.99},
      offline_flag()};
  flags.insert(flags.end(), std::begin(own), std::end(own));
  for (Flag& flag : weights_from_flags()) flags.push_back(std::move(flag));
  for (Flag& flag : rank_flags()) flags.push_back(std::move(flag));
  return flags;
}

}  // namespace

cli::Verb serve_verb() {
  cli::Verb verb{
      .name = "serve",
      .summary = "Serves models over the OpenAI API.",
      .about =
          "Prints 'listening on URL' on stdout once it answers. SIGTERM or Ctrl-C lets running\n"
          "answers end, then stops with exit code 0; a second signal stops at once. SIGHUP reads\n"
          "certificates, keys and log level anew, and opens the access log's file again. A hub id\n"
          "that is not here yet is fetched first, as pelton pull does.",
      .positionals =
          {{.name = "MODEL",
            .help = "a model folder, a .gguf file or a hub id; several share memory and threads",
            .many = true,
            .variables = {"PELTON_MODEL", "OPTION_MODEL_ID"}}},
      .flags = {{.name = "--host",
                 .value = "ADDRESS",
                 .help = "where to listen",
                 .default_text = "127.0.0.1"},
                {.name = "--port",
                 .value = "N",
                 .help = "0: any free one",
                 .kind = Flag::Kind::kInteger,
                 .default_text = "8000",
                 .most = 65535,
                 .variables = {"SAGEMAKER_BIND_TO_PORT"}},
                {.name = "--uds",
                 .value = "PATH",
                 .help = "listen on this Unix socket instead of --port",
                 .may_be_empty = false},
                {.name = "--grpc-port",
                 .value = "N",
                 .help = "serve gRPC there too (proto/pelton/v1/inference.proto); 0: any free one",
                 .kind = Flag::Kind::kInteger,
                 .most = 65535},
                {.name = "--log-json", .help = "log lines as JSON", .kind = Flag::Kind::kSwitch}},
      // A gateway sends no requests to a worker whose models are away.
      .exclusive = {{"--sleep-after", "--fleet-port"}, {"--enable-sleep-mode", "--fleet-port"}},
      .examples = {"pelton serve openai/gpt-oss-20b", "pelton serve openai/whisper-small",
                   "pelton serve ./model --port 9000 --max-model-len 32K --kv-cache-memory 4GiB",
                   "pelton serve ./large ./small --alias gpt-4o=./large",
                   "pelton serve ./orpheus-3b --speech-decoder ./snac_24khz",
                   "PELTON_API_KEY=secret pelton serve ./model --host 0.0.0.0",
                   "pelton serve ./model --batches ./batches --grpc-port 9001 --tool-server "
                   "python=http://127.0.0.1:8001/mcp"},
      .run = run_serve,
      .other_prefix = "OPTION_",  // as SageMaker's containers are configured
      .foreign = serve_foreign_flags(),
      .configurable = true,
  };
  for (const auto part : {&answer_flags, &request_flags, &model_name_flags, &listener_flags,
                          &batch_flags, &kv_disk_flags, &queue_flags, &prompt_flags, &speech_flags,
                          &transcription_flags, &lora_flags, &model_flags, &response_store_flags,
                          &tool_flags, &batches_flags, &sleep_flags, &life_flags, &guard_flags}) {
    for (Flag& flag : part()) verb.flags.push_back(std::move(flag));
  }
  verb.flags.push_back(connections_flag());
  verb.flags.push_back(replicas_flag());
  for (Flag& flag : console_flags("all")) verb.flags.push_back(std::move(flag));
  for (Flag& flag : admin_flags()) verb.flags.push_back(std::move(flag));
  for (Flag& flag : fleet_listener_flags()) verb.flags.push_back(std::move(flag));
  for (Flag& flag : watch_flags()) verb.flags.push_back(std::move(flag));
  for (Flag& flag : reporting_flags()) verb.flags.push_back(std::move(flag));
  for (Flag& flag : audit_flags("who loads, unloads and erases what")) {
    verb.flags.push_back(std::move(flag));
  }
  return verb;
}

}  // namespace pelton::apps
