#include "apps/model_host.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "apps/engine_flags.h"
#include "apps/loading.h"
#include "apps/pinning.h"
#include "apps/sampling_defaults.h"
#include "base/machine.h"
#include "checkpoint/hub_cache.h"
#include "cli/exit_code.h"
#include "cli/human_size.h"
#include "cli/terminal.h"
#include "cost_model/footprint.h"
#include "executor/compute_threads.h"
#include "tensor/kv_block.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr std::chrono::seconds kStuckGrace{1};

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

server::ServedModel served_model(const cli::Arguments& arguments, node::LoadedModel& model,
                                 const server::ModelCatalogue::Names& names,
                                 const base::Clock& clock) {
  const tokenizer::Tokenizer& tokenizer = model.any_tokenizer();
  const bool has_text = model.tokenizer().ok();
  // Without a format there are no conversations, without a tokenizer only token ids.
  const auto format = model.chat_format();
  const int vocab_size = model.config().vocab_size;
  server::ServedModel served{
      .id = names.id,
      .aliases = names.aliases,
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
      .unknown_fields = arguments.has("--strict-fields") ? api::UnknownFields::kRefuse
                                                         : api::UnknownFields::kWarn,
      .top_logprobs_max = static_cast<int>(arguments.integer("--max-logprobs")),
  };
  served.runtime = [&model] { return runtime_facts(model); };
  if (arguments.has("--current-date")) served.current_date = arguments.text("--current-date");
  return served;
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

// Null: the model is a script. What it finds changes the server's health.
std::unique_ptr<node::WeightScrubber> make_weight_watch(const cli::Arguments& arguments,
                                                        node::LoadedModel& model,
                                                        server::ModelState& served,
                                                        const std::function<void()>& health_changed,
                                                        const base::Clock& clock, base::Log& log) {
  using State = node::WeightScrubber::State;
  using server::ModelHealth;
  const double hours = arguments.number("--weight-scrub-hours");
  const int64_t errors_max = arguments.integer("--numerical-errors-max");
  if (model.local_executor() == nullptr || (hours == 0 && errors_max == 0)) return nullptr;
  const bool leaves = arguments.text("--watchdog-action") == "exit";
  const engine::Engine& engine = model.engine();
  const auto on_change = [&served, health_changed, &log, leaves](State state) {
    served.model_health = state == State::kSound     ? ModelHealth::kSound
                          : state == State::kDoubted ? ModelHealth::kDoubted
                                                     : ModelHealth::kDamaged;
    health_changed();
    if (state != State::kDamaged || !leaves) return;
    std::this_thread::sleep_for(kStuckGrace);
    log.error("leaving, as --watchdog-action asks");
    _exit(cli::kExitStuck);
  };
  return std::make_unique<node::WeightScrubber>(
      node::WeightScrubber::Options{
          .period_ns = static_cast<int64_t>(hours * 3600e9),
          .errors = {.errors_max = static_cast<int>(errors_max)},
          .error_count = [&engine] { return engine.stats().scheduler.numerical_errors; },
          .on_change = on_change},
      model.weights_in_memory(), clock, log);
}

// Of several models each has a step log of its own: FILE.NAME.
std::string step_log_of(const std::string& file, const std::string& id, bool alone) {
  if (file.empty() || alone) return file;
  std::string name = id;
  std::replace(name.begin(), name.end(), '/', '_');
  return file + "." + name;
}

Error alias_error(const std::string& alias, std::string_view why) {
  return {ErrorCode::kInvalidArgument, fmt::format("--alias {}: {}", alias, why), "alias"};
}

// Of "x=A", where A is one of the models as it stands on the command line, or the name of one.
Result<void> add_alias(const std::string& alias, std::vector<NamedModel>& models) {
  const size_t equals = alias.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == alias.size()) {
    return alias_error(alias, "give it as NAME=MODEL");
  }
  const std::string model = alias.substr(equals + 1);
  for (NamedModel& one : models) {
    if (one.model != model && one.names.id != model) continue;
    one.names.aliases.push_back(alias.substr(0, equals));
    return {};
  }
  return alias_error(alias, fmt::format("no MODEL of this command is '{}'", model));
}

}  // namespace

std::vector<Flag> model_name_flags() {
  return {{.name = "--served-model-name",
           .value = "NAME",
           .help = "what clients call the model, where there is one; default the folder's name or "
                   "the hub id; more names behind it are aliases",
           .many = true},
          {.name = "--alias",
           .value = "NAME=MODEL",
           .help = "another name for one of the models; may be given again",
           .many = true},
          {.name = "--step-log",
           .value = "FILE",
           .help = "write what each step computed and how long it took, for calibrate; of several "
                   "models to FILE.NAME"}};
}

Result<std::vector<NamedModel>> named_models(const cli::Arguments& arguments) {
  const std::vector<std::string>& given = arguments.list("MODEL");
  const bool named = arguments.has("--served-model-name");
  if (named && given.size() > 1) {
    return Error{ErrorCode::kInvalidArgument,
                 "--served-model-name names one model, and there are several; give each another "
                 "name with --alias NAME=MODEL",
                 "served-model-name"};
  }
  std::vector<NamedModel> models;
  for (const std::string& model : given) {
    NamedModel one{.model = model, .names = {}};
    const std::vector<std::string>& names = arguments.list("--served-model-name");
    one.names.id = named ? names.front() : name_of(model);
    if (named) {
      one.names.aliases.assign(names.begin() + 1, names.end());
    } else {
      std::set<std::string> others = {model, checkpoint::hub_id_of(model)};
      others.erase(one.names.id);
      one.names.aliases.assign(others.begin(), others.end());
    }
    models.push_back(std::move(one));
  }
  for (const std::string& alias : arguments.list("--alias")) TRY(add_alias(alias, models));
  return models;
}

Result<node::LoadedModel::Options> ModelHost::options_of(const cli::Arguments& arguments,
                                                         const base::Clock& clock) {
  TRY_ASSIGN(node::LoadedModel::Options options, model_options(arguments, clock));
  TRY(read_batch_flags(arguments, options));
  TRY(read_queue_flags(arguments, options));
  TRY(read_prompt_flags(arguments, options));
  options.step_log = arguments.text("--step-log");
  return options;
}

// What goes first stands last.
struct ModelHost::Hosted {
  explicit Hosted(std::unique_ptr<node::LoadedModel> model) : loaded(std::move(model)) {}

  std::unique_ptr<node::LoadedModel> loaded;
  std::optional<server::ServedModel> served;
  std::unique_ptr<server::Watchdog> watchdog;
  std::unique_ptr<node::WeightScrubber> weights;
};

ModelHost::ModelHost(Parts parts) : parts_(std::move(parts)), budget_(base::memory_limit_bytes()) {}

ModelHost::~ModelHost() = default;

Result<void> ModelHost::load(const std::vector<NamedModel>& models, const Settings& settings) {
  for (const NamedModel& one : models)
    TRY(parts_.server.services().catalogue.begin_load(one.names));
  Settings shared = settings;
  shared.options.budget = &budget_;
  if (models.size() > 1) {
    const int threads = settings.options.executor.threads;
    shared.options.executor.compute_threads = std::make_shared<executor::ComputeThreads>(threads);
  }
  std::optional<Error> first;
  for (const NamedModel& one : models) {
    Result<void> loaded = load_one(one, shared, models.size() == 1);
    if (loaded.ok()) continue;
    parts_.server.services().catalogue.fail(one.names.id, loaded.error());
    if (models.size() == 1 || parts_.interrupt.pending()) return loaded;
    parts_.log.error(fmt::format("'{}' is not served: {}", one.names.id, loaded.error().message));
    if (!first) first = loaded.error();
  }
  if (hosted_.empty()) return *first;
  return {};
}

Result<void> ModelHost::load_one(const NamedModel& model, const Settings& settings, bool alone) {
  const cli::Arguments& arguments = parts_.arguments;
  node::LoadedModel::Options options = settings.options;
  options.name = model.names.id;
  options.step_log = step_log_of(options.step_log, model.names.id, alone);
  TRY_ASSIGN(auto loaded,
             load_model(model.model, options, &parts_.interrupt, parts_.clock, parts_.log));
  auto hosted = std::make_unique<Hosted>(std::move(loaded));
  node::LoadedModel& node = *hosted->loaded;
  // On a terminal the banner says it in fewer words.
  if (!cli::is_terminal(stderr)) log_capacity(node, options.engine, parts_.log);
  hosted->served.emplace(served_model(arguments, node, model.names, parts_.clock));
  server::ServedModel& served = *hosted->served;
  if (arguments.has("--pin-prefix")) {
    TRY(pin_prefix(arguments.text("--pin-prefix"), served, parts_.interrupt, parts_.clock,
                   parts_.log));
  }
  hosted->watchdog = make_watchdog(arguments, node.engine(), parts_.clock, parts_.log);
  served.watchdog = hosted->watchdog.get();
  served.limits = settings.limits;
  served.sampling = sampling_defaults(arguments, node.checkpoint(), parts_.log);
  parts_.server.serve({&served, [](server::ServedModel*) {}});
  hosted->weights = make_weight_watch(arguments, node, *served.state, parts_.health_changed,
                                      parts_.clock, parts_.log);
  hosted_.push_back(std::move(hosted));
  return {};
}

std::vector<std::string> ModelHost::lines() const {
  std::vector<std::string> lines;
  for (const std::unique_ptr<Hosted>& hosted : hosted_) {
    const executor::LocalExecutor* local = hosted->loaded->local_executor();
    const engine::ExecutorCapacity& capacity = hosted->loaded->engine().capacity();
    const std::string device =
        local == nullptr
            ? "scripted answers, no model"
            : fmt::format("{} kernels, {} threads", local->kernels_name(), local->threads());
    const std::string kv_bytes =
        local == nullptr
            ? ""
            : fmt::format(" ({})",
                          cli::format_bytes(static_cast<double>(local->footprint().kv.bytes())));
    lines.push_back(
        fmt::format("{}: {}; context {} tokens; {} conversations at once; KV cache of {} tokens{}",
                    cli::without_controls(hosted->served->id), device,
                    cli::format_count(capacity.context_tokens_max), capacity.sequences_max,
                    cli::format_count(capacity.kv_tokens()), kv_bytes));
  }
  return lines;
}

void ModelHost::drain(int64_t ms) {
  const int64_t end_ns = parts_.clock.now_ns() + ms * 1'000'000;
  for (const std::unique_ptr<Hosted>& hosted : hosted_) {
    hosted->loaded->engine().drain(
        std::max<int64_t>((end_ns - parts_.clock.now_ns()) / 1'000'000, 0));
  }
}

void ModelHost::stop_watching() {
  for (const std::unique_ptr<Hosted>& hosted : hosted_) hosted->weights.reset();
}

}  // namespace pelton::apps
