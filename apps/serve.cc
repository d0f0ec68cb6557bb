// pelton serve: one model behind the OpenAI API, until SIGTERM or Ctrl-C.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "apps/admin_door.h"
#include "apps/connection_bound.h"
#include "apps/door_flags.h"
#include "apps/engine_flags.h"
#include "apps/input.h"
#include "apps/life_cycle.h"
#include "apps/loading.h"
#include "apps/pinning.h"
#include "apps/process_guard.h"
#include "apps/reporting.h"
#include "apps/response_store_flags.h"
#include "apps/sampling_defaults.h"
#include "apps/serve_limits.h"
#include "apps/verbs.h"
#include "apps/version.h"
#include "base/heap_trim.h"
#include "checkpoint/hub_cache.h"
#include "cli/exit_code.h"
#include "cli/human_size.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "cost_model/footprint.h"
#include "net/http_server.h"
#include "node/weight_watch.h"
#include "server/grpc_door.h"
#include "server/health.h"
#include "server/server.h"
#include "server/watchdog.h"
#include "tensor/kv_block.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr std::chrono::seconds kCloseGrace{5};
constexpr std::chrono::seconds kStuckGrace{1};

Result<node::LoadedModel::Options> node_options(const cli::Arguments& arguments,
                                                const base::Clock& clock) {
  TRY_ASSIGN(node::LoadedModel::Options options, model_options(arguments, clock));
  TRY(read_batch_flags(arguments, options));
  TRY(read_queue_flags(arguments, options));
  TRY(read_prompt_flags(arguments, options));
  options.step_log = arguments.text("--step-log");
  return options;
}

// "openai/gpt-oss-20b" stays; a folder is called by its last part.
std::string name_of(const std::string& model) {
  if (!std::filesystem::is_directory(model)) return model;
  const std::filesystem::path path = std::filesystem::canonical(model);
  return path.filename().string();
}

// What computes, in words: for /server_info.
std::vector<std::pair<std::string, std::string>> runtime_facts(const node::LoadedModel& model) {
  const executor::LocalExecutor* local = model.local_executor();
  if (local == nullptr) return {{"executor", "modelled"}};
  const cost_model::Footprint& footprint = local->footprint();
  std::string load_mode(load_mode_name(model.load_choice().mode));
  std::string load_mode_reason = model.load_choice().reason;
  if (model.weights_in_memory() == nullptr) load_mode = "device";
  if (model.lock_given_up()) {
    load_mode = load_mode_name(checkpoint::LoadMode::kMap);
    load_mode_reason =
        "the lock was given up because memory was short; it is taken again when there has been "
        "enough for a minute";
  }
  std::vector<std::pair<std::string, std::string>> facts = {
      {"executor", "local"},
      {"kernels", std::string(local->kernels_name())},
      {"threads", std::to_string(local->threads())},
      {"weights", model.weights_text()},
      {"kv_dtype", std::string(tensor::kv_type_name(footprint.kv.dtype))},
      {"load_mode", load_mode},
      {"load_mode_reason", load_mode_reason},
      {"memory", cost_model::log_line(footprint)}};
  if (const executor::KernelChoice* choice = local->kernel_choice()) {
    facts.emplace_back("kernel_choice", choice->how);
    facts.emplace_back("kernel_forms", choice->forms);
  }
  return facts;
}

Result<server::ServedModel> served_model(const cli::Arguments& arguments, node::LoadedModel& model,
                                         const base::Clock& clock) {
  const tokenizer::Tokenizer& tokenizer = model.any_tokenizer();
  const bool has_text = model.tokenizer().ok();
  // Without a format there are no conversations, without a tokenizer only token ids.
  const auto format = model.chat_format();
  const int vocab_size = model.config().vocab_size;
  const std::string& argument = arguments.text("MODEL");
  const bool named = arguments.has("--served-model-name");
  server::ServedModel served{
      .id = named ? arguments.text("--served-model-name") : name_of(argument),
      .aliases = {},
      .created = clock.unix_ms() / 1000,
      .context_max = model.engine().capacity().context_tokens_max,
      .vocab_size = has_text ? std::min(tokenizer.vocab_size(), vocab_size) : vocab_size,
      .tokenizer = tokenizer,
      .has_text = has_text,
      .chat = format.ok() ? *format : nullptr,
      .stop_tokens = model.stop_tokens(),
      .engine = model.engine(),
      .sampling = {},
      .reasoning_field = arguments.text("--reasoning-field"),
      .current_date = {},
      .pooling =
          arguments.text("--pooling") == "mean" ? request::Pooling::kMean : request::Pooling::kLast,
      .control_tokens_in_prompts = arguments.has("--allow-control-tokens"),
  };
  if (!named) {
    std::set<std::string> others = {argument, checkpoint::hub_id_of(argument)};
    others.erase(served.id);
    served.aliases.assign(others.begin(), others.end());
  }
  served.runtime = [&model] { return runtime_facts(model); };
  if (arguments.has("--current-date")) served.current_date = arguments.text("--current-date");
  return served;
}

std::string url_of(const std::string& host, int port, bool tls) {
  const bool is_v6 = host.find(':') != std::string::npos;
  const std::string shown = host == "0.0.0.0" || host == "::" ? "127.0.0.1"
                            : is_v6                           ? "[" + host + "]"
                                                              : host;
  return fmt::format("{}://{}:{}", tls ? "https" : "http", shown, port);
}

// At most six lines, for people only: on a terminal.
void print_banner(const server::ServedModel& served, const node::LoadedModel& model,
                  const engine::ExecutorCapacity& capacity, const std::string& url) {
  const cli::Terminal terminal(stderr);
  if (!terminal.interactive()) return;
  const executor::LocalExecutor* local = model.local_executor();
  const std::string device =
      local == nullptr
          ? "scripted answers, no model"
          : fmt::format("{} kernels, {} threads", local->kernels_name(), local->threads());
  const int64_t kv_tokens = capacity.kv_tokens();
  const std::string kv_bytes =
      local == nullptr
          ? ""
          : fmt::format(" ({})",
                        cli::format_bytes(static_cast<double>(local->footprint().kv.bytes())));
  fmt::print(stderr,
             "Pelton {} serves {} on {}\n"
             "  {}; context {} tokens; {} conversations at once\n"
             "  room for keys and values of {} tokens{}\n"
             "  curl {}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
             "    -d '{{\"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}'\n",
             kVersion, terminal.bold(cli::without_controls(served.id)), terminal.bold(url), device,
             cli::format_count(capacity.context_tokens_max), capacity.sequences_max,
             cli::format_count(kv_tokens), kv_bytes, url);
}

// "13.1 GiB of 23.5 GiB: weights 12.1 GiB, ...".
std::string memory_line(const cost_model::Footprint& footprint) {
  const auto human = [](int64_t bytes) { return cli::format_bytes(static_cast<double>(bytes)); };
  const std::string swap =
      footprint.swap.bytes() == 0 ? "" : fmt::format(", swap {}", human(footprint.swap.bytes()));
  return fmt::format(
      "memory: {} of {}: weights {}, working memory {}, KV cache {} in {} ({} tokens; {} sequences "
      "of {} tokens at once){}",
      human(footprint.bytes()), human(footprint.memory_bytes), human(footprint.weights.bytes()),
      human(footprint.workspace.bytes()), human(footprint.kv.bytes()),
      tensor::kv_type_name(footprint.kv.dtype), footprint.kv.token_count(),
      footprint.max_sequences(), footprint.context_tokens_max, swap);
}

// What was allocated, at debug level to the byte, as `pelton plan` foretells it; and how the engine
// is set.
void log_capacity(node::LoadedModel& model, const engine::Engine::Options& options,
                  base::Log& log) {
  if (const auto* local = model.local_executor()) {
    log.info(memory_line(local->footprint()));
    log.debug(cost_model::log_line(local->footprint()));
  }
  log.info(engine_line(options, model.engine().capacity()));
}

// Null: none was asked for.
std::unique_ptr<server::Watchdog> make_watchdog(const cli::Arguments& arguments,
                                                engine::Engine& engine, const base::Clock& clock,
                                                base::Log& log) {
  const int64_t seconds = arguments.integer("--watchdog-seconds");
  if (seconds == 0) return nullptr;
  std::function<void()> on_stuck;
  if (arguments.text("--watchdog-action") == "exit") {
    on_stuck = [&log] {
      // The answers that were given up are on their way. Nothing can be torn down in order: the
      // thread that is stuck would be waited for.
      std::this_thread::sleep_for(kStuckGrace);
      log.error("leaving, as --watchdog-action asks");
      _exit(cli::kExitStuck);
    };
  }
  return std::make_unique<server::Watchdog>(
      server::Watchdog::Options{.limit_ns = seconds * 1'000'000'000, .on_stuck = on_stuck}, engine,
      clock, log);
}

// Null: the model is a script. What the watch finds is told to both doors.
std::unique_ptr<node::WeightWatch> make_weight_watch(const cli::Arguments& arguments,
                                                     node::LoadedModel& model,
                                                     server::ModelState& served,
                                                     server::Server& server, server::GrpcDoor& grpc,
                                                     const base::Clock& clock, base::Log& log) {
  using State = node::WeightWatch::State;
  using server::Soundness;
  const double hours = arguments.number("--weight-scrub-hours");
  const int64_t errors_max = arguments.integer("--numerical-errors-max");
  if (model.local_executor() == nullptr || (hours == 0 && errors_max == 0)) return nullptr;
  const bool leaves = arguments.text("--watchdog-action") == "exit";
  const engine::Engine& engine = model.engine();
  const auto on_change = [&served, &server, &grpc, &log, leaves](State state) {
    served.soundness = state == State::kSound     ? Soundness::kSound
                       : state == State::kDoubted ? Soundness::kDoubted
                                                  : Soundness::kDamaged;
    grpc.set_serving(server::ready_reply(server.services()).status == 200);
    if (state != State::kDamaged || !leaves) return;
    std::this_thread::sleep_for(kStuckGrace);
    log.error("leaving, as --watchdog-action asks");
    _exit(cli::kExitStuck);
  };
  return std::make_unique<node::WeightWatch>(
      node::WeightWatch::Options{
          .period_ns = static_cast<int64_t>(hours * 3600e9),
          .errors = {.errors_max = static_cast<int>(errors_max)},
          .error_count = [&engine] { return engine.stats().scheduler.numerical_errors; },
          .on_change = on_change},
      model.weights_in_memory(), clock, log);
}

// Who is asked to stop while the model is loaded has nothing to drain: it has stopped, as asked.
Result<void> unless_stopped(const Error& error, const cli::Interrupt& interrupt, base::Log& log) {
  if (error.code != ErrorCode::kCancelled || !interrupt.pending()) return error;
  log.info("stopped while the model was being loaded");
  return {};
}

Result<void> run(const cli::Arguments& arguments) {
  const base::SystemClock clock;
  TRY_ASSIGN(node::LoadedModel::Options options, node_options(arguments, clock));
  TRY_ASSIGN(const access::ApiKeys keys, api_keys(arguments));
  TRY(check_exposure(arguments, keys));
  TRY_ASSIGN(const access::CorsOrigins cors, cors_origins(arguments));
  TRY_ASSIGN(const net::AllowedHosts hosts, allowed_hosts(arguments));
  TRY_ASSIGN(const std::string reasoning_secret, reasoning_key(arguments));
  TRY_ASSIGN(const std::shared_ptr<net::TlsIdentity> tls, tls_identity(arguments));
  TRY(check_date(arguments));
  base::Log log(clock, {.level = log_level(arguments), .json = arguments.has("--log-json")});
  const cli::Interrupt interrupt(cli::Interrupt::HangUp::kTold);
  guard_process(arguments, log);
  const base::HeapTrim heap({});

  // The port first: a taken one should be told before a large model is read.
  TRY_ASSIGN(const std::unique_ptr<store::ResponseStore> responses,
             open_response_store(arguments, clock, log));
  Reporting reporting;
  TRY(reporting.open(arguments, log));
  server::Server server({.version = kVersion,
                         .keys = keys,
                         .cors = cors,
                         .reasoning_key = reasoning_secret,
                         .sampled_turn_tokens_max = arguments.integer("--sampled-turn-tokens"),
                         .response_store = responses.get(),
                         .reports = reporting.options()},
                        clock, log);
  const std::string& host = arguments.text("--host");
  const ConnectionBound connections = connection_bound(arguments);
  const net::HttpServer::Options http_options{.address = host,
                                              .port = static_cast<int>(arguments.integer("--port")),
                                              .threads = http_threads(arguments),
                                              .connections_max = connections.http,
                                              .hosts = hosts.at(host),
                                              .tls = tls};
  net::HttpServer http(
      http_options,
      [&](net::HttpRequest request, std::shared_ptr<net::Exchange> exchange) {
        server.handle(std::move(request), std::move(exchange));
      },
      log);
  server.services().upkeep.watch(
      {.identity = tls, .handshakes_failed = [&http] { return http.handshakes_failed(); }});
  TRY(with_flag(http.start(), "host"));
  AdminDoor admin(server, http, log);
  TRY(admin.open(arguments, tls));
  server::GrpcDoor grpc(server.services(), log);
  std::optional<server::GrpcDoor::Options> grpc_options;
  if (arguments.has("--grpc-port")) {
    grpc_options = {
        .address = host,
        .port = static_cast<int>(arguments.integer("--grpc-port")),
        .hosts = hosts.at(host),
        .tls = tls,
        .connections_max = connections.grpc,
        .descriptors_spared = http_options.descriptors_spared,
        .descriptors_promised = http.connections_max() + http.connection_refusals_max()};
    TRY(grpc.open(*grpc_options));
  }

  // Declared last: listeners and formats' compiling, which look at it, are stopped by hand before.
  Result<std::unique_ptr<node::LoadedModel>> model =
      load_model(arguments.text("MODEL"), options, &interrupt, clock, log);
  const auto close_doors = [&](std::chrono::milliseconds grace) {
    grpc.close(grace);
    http.stop(grace);
    server.services().stop_pools();  // whose jobs look at models
  };
  if (!model) {
    close_doors(std::chrono::milliseconds(0));
    return unless_stopped(model.error(), interrupt, log);
  }
  // On a terminal the banner says it in fewer words.
  if (!cli::is_terminal(stderr)) log_capacity(**model, options.engine, log);
  Result<server::ServedModel> served = served_model(arguments, **model, clock);
  Result<void> pinned;
  if (served.ok() && arguments.has("--pin-prefix")) {
    pinned = pin_prefix(arguments.text("--pin-prefix"), *served, interrupt, clock, log);
  }
  if (!served.ok() || !pinned.ok()) {
    close_doors(std::chrono::milliseconds(0));
    return unless_stopped(served.ok() ? pinned.error() : served.error(), interrupt, log);
  }
  const std::unique_ptr<server::Watchdog> watchdog =
      make_watchdog(arguments, (*model)->engine(), clock, log);
  served->watchdog = watchdog.get();
  served->limits = limits_in_force({.arguments = arguments,
                                    .http = http_options,
                                    .connections_max = http.connections_max(),
                                    .grpc_connections_max = grpc.connections_max(),
                                    .engine = options.engine,
                                    .grpc = grpc_options ? &*grpc_options : nullptr});
  served->sampling = sampling_defaults(arguments, (*model)->checkpoint(), log);
  server.serve({&*served, [](server::ServedModel*) {}});
  grpc.set_serving(true);
  std::unique_ptr<node::WeightWatch> weights =
      make_weight_watch(arguments, **model, *served->state, server, grpc, clock, log);
  const std::string url = url_of(host, http.port(), tls != nullptr);
  if (!is_local(host) && keys.empty()) {
    log.warning("anyone who reaches this machine can use the model; --api-key asks for a key");
  }
  print_banner(*served, **model, (*model)->engine().capacity(), url);
  LifeCycle life({arguments, interrupt, server, grpc, reporting, tls, log});
  const std::string admin_line =
      admin.url().empty() ? "" : fmt::format("admin on {}\n", admin.url());
  const std::string grpc_line =
      grpc.port() == 0 ? "" : fmt::format("gRPC on {}:{}\n", host, grpc.port());
  const Result<void> told =
      write_output(fmt::format("listening on {}\n{}{}", url, admin_line, grpc_line));
  if (!told) log.warning(told.error().message);  // nobody reads stdout; serving matters more

  life.wait_for_the_end();
  weights.reset();  // it speaks to a door that will be closed
  server.drain();
  const int64_t end_ns = clock.now_ns() + life.drain_ms() * 1'000'000;
  (*model)->engine().drain(life.drain_ms());
  // Whoever reads slowly has the rest of the time to read what there is.
  const std::chrono::nanoseconds left(std::max<int64_t>(0, end_ns - clock.now_ns()));
  close_doors(kCloseGrace + std::chrono::duration_cast<std::chrono::milliseconds>(left));
  admin.close();
  return {};
}

}  // namespace

cli::Verb serve_verb() {
  cli::Verb verb{
      .name = "serve",
      .summary = "Serves a model over the OpenAI API.",
      .about =
          "Prints 'listening on URL' on stdout once it answers. SIGTERM or Ctrl-C lets running\n"
          "answers end, then stops with exit code 0; a second signal stops at once. SIGHUP reads\n"
          "certificates, keys and log level anew, and opens the access log's file again. A hub id\n"
          "that is not here yet is fetched first, as pelton pull does.",
      .positionals = {{.name = "MODEL",
                       .help = "a model folder or a hub id",
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
                {.name = "--grpc-port",
                 .value = "N",
                 .help = "serve gRPC there too (proto/pelton/v1/inference.proto); 0: any free one",
                 .kind = Flag::Kind::kInteger,
                 .most = 65535},
                {.name = "--served-model-name",
                 .value = "NAME",
                 .help = "what clients call the model; default the folder's name or the hub id"},
                generation_config_flag(),
                {.name = "--current-date",
                 .value = "YYYY-MM-DD",
                 .help = "what models are told; default the clock's"},
                {.name = "--reasoning-field",
                 .value = "NAME",
                 .help = "the field that reasoning comes in",
                 .default_text = "reasoning_content",
                 .choices = {"reasoning_content", "reasoning"}},
                {.name = "--pooling",
                 .value = "NAME",
                 .help = "which final states embeddings are made of, unless a request says",
                 .default_text = "last",
                 .choices = {"last", "mean"}},
                {.name = "--allow-control-tokens",
                 .help = "token-id prompts of /v1/completions may hold control tokens",
                 .kind = Flag::Kind::kSwitch},
                {.name = "--log-json", .help = "log lines as JSON", .kind = Flag::Kind::kSwitch},
                {.name = "--step-log",
                 .value = "FILE",
                 .help = "write what each step computed and how long it took, for calibrate"}},
      .examples = {"pelton serve openai/gpt-oss-20b",
                   "pelton serve ./model --port 9000 --max-model-len 32K --kv-cache-memory 4GiB",
                   "PELTON_API_KEY=secret pelton serve ./model --host 0.0.0.0"},
      .run = run,
      .other_prefix = "OPTION_",  // as SageMaker's containers are told
      .configurable = true,
  };
  for (Flag& flag : door_flags()) verb.flags.push_back(std::move(flag));
  for (Flag& flag : batch_flags()) verb.flags.push_back(std::move(flag));
  for (Flag& flag : queue_flags()) verb.flags.push_back(std::move(flag));
  for (Flag& flag : prompt_flags()) verb.flags.push_back(std::move(flag));
  for (Flag& flag : model_flags()) verb.flags.push_back(std::move(flag));
  for (Flag& flag : response_store_flags()) verb.flags.push_back(std::move(flag));
  for (Flag& flag : life_flags()) verb.flags.push_back(std::move(flag));
  for (Flag& flag : guard_flags()) verb.flags.push_back(std::move(flag));
  verb.flags.push_back(connections_flag());
  for (Flag& flag : admin_flags()) verb.flags.push_back(std::move(flag));
  for (Flag& flag : reporting_flags()) verb.flags.push_back(std::move(flag));
  return verb;
}

}  // namespace pelton::apps
