#include "apps/model_host.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <iterator>
#include <optional>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "apps/engine_flags.h"
#include "apps/fleet_listener.h"
#include "apps/kv_disk_flags.h"
#include "apps/kv_event_flags.h"
#include "apps/loading.h"
#include "apps/lora_flags.h"
#include "apps/model_fetch.h"
#include "apps/pinning.h"
#include "apps/rank_flags.h"
#include "apps/rank_watch.h"
#include "apps/sampling_defaults.h"
#include "apps/served_adapters.h"
#include "apps/speech_flags.h"
#include "apps/transcription_flags.h"
#include "apps/vector_flags.h"
#include "apps/verbs.h"
#include "base/log_context.h"
#include "base/machine.h"
#include "checkpoint/model_card.h"
#include "cli/exit_code.h"
#include "cli/flag_names.h"
#include "cli/human_size.h"
#include "cli/terminal.h"
#include "cost_model/footprint.h"
#include "executor/expert_histogram.h"
#include "node/model_fingerprint.h"
#include "node/weight_scrubber.h"
#include "server/watchdog.h"
#include "tensor/kv_block.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr std::chrono::seconds kStuckGrace{1};
constexpr std::string_view kReasoningField = "reasoning_content";

// "process 42: 9312 exchanges, 11.2 MiB received, 0.210 s waiting, 0.013 s copying"; of one on
// another host "at 10.0.0.2: ...".
std::string text_of(const parallel::Group::RankState& rank) {
  const parallel::Exchange::Counts& counts = rank.counts;
  const std::string where =
      rank.host.empty() ? fmt::format("process {}", rank.process) : "at " + rank.host;
  return fmt::format("{}: {} exchanges, {} received, {:.3f} s waiting, {:.3f} s copying", where,
                     counts.exchanges, cli::format_bytes(static_cast<double>(counts.bytes)),
                     static_cast<double>(counts.wait_ns) * 1e-9,
                     static_cast<double>(counts.copy_ns) * 1e-9);
}

std::vector<server::RankFigures> rank_figures(const node::LoadedModel& model) {
  std::vector<server::RankFigures> figures;
  const executor::LocalExecutor* const local = model.local_executor();
  if (local == nullptr) return figures;
  for (const parallel::Group::RankState& rank : local->ranks()) {
    figures.push_back({.rank = rank.rank,
                       .exchanges = rank.counts.exchanges,
                       .received_bytes = rank.counts.bytes,
                       .waiting_seconds = static_cast<double>(rank.counts.wait_ns) * 1e-9,
                       .copying_seconds = static_cast<double>(rank.counts.copy_ns) * 1e-9,
                       .expert_rows = rank.counts.rows,
                       .weight_bytes = rank.weight_bytes,
                       .cache_bytes = rank.cache_bytes});
  }
  return figures;
}

// Of the model that a server began with.
Result<std::optional<executor::ExpertHistogram>> histogram_of(const cli::Arguments& arguments,
                                                              bool is_only) {
  using Histogram = std::optional<executor::ExpertHistogram>;
  const char* const flag = "--expert-histogram";
  if (!is_only || !arguments.knows(flag) || !arguments.has(flag)) return Histogram();
  TRY_ASSIGN(executor::ExpertHistogram histogram,
             executor::ExpertHistogram::open(arguments.text(flag)));
  return Histogram(std::move(histogram));
}

// Adds what its tokens chose; once, before the model goes, which it and `log` outlive.
std::function<void()> keeping(const executor::ExpertHistogram& histogram,
                              const node::LoadedModel& model, base::Log& log) {
  return [histogram, &model, &log] {
    const executor::LocalExecutor* const local = model.local_executor();
    if (local == nullptr || local->chosen_experts().empty()) return;
    const Result<void> kept = histogram.keep(local->chosen_experts());
    if (!kept.ok()) log.warning("--expert-histogram: " + kept.error().message);
  };
}

// What computes, in words: for /server_info.
std::vector<std::pair<std::string, std::string>> runtime_facts(const node::LoadedModel& model,
                                                               const std::string& fingerprint) {
  const executor::LocalExecutor* local = model.local_executor();
  if (local == nullptr) {
    return {{"executor", "modelled"},
            {"fingerprint", fingerprint},
            {"chat_template", model.chat_template_name()}};
  }
  const cost_model::Footprint& footprint = local->footprint();
  std::string load_mode(load_mode_name(model.load_choice().mode));
  std::string load_mode_reason = model.load_choice().reason;
  if (!model.has_weights_in_memory()) load_mode = "device";
  if (model.lock_given_up()) {
    load_mode = load_mode_name(checkpoint::LoadMode::kMap);
    load_mode_reason =
        "the lock was given up because memory was short; it is taken again when there has been "
        "enough for a minute";
  }
  std::vector<std::pair<std::string, std::string>> facts = {
      {"executor", "local"},
      {"fingerprint", fingerprint},
      {"chat_template", model.chat_template_name()},
      {"kernels", std::string(local->kernels_name())},
      {"threads", std::to_string(local->threads())},
      {"tensor_parallel_size", std::to_string(std::max<size_t>(local->ranks().size(), 1))},
      {"weights", model.weights_text()},
      {"kv_dtype", std::string(tensor::kv_type_name(footprint.kv.dtype))},
      {"load_mode", load_mode},
      {"load_mode_reason", load_mode_reason},
      {"memory", cost_model::log_line(footprint)}};
  for (const node::FormatRecord& record : model.format_records()) {
    facts.emplace_back("evaluated_" + record.format, record.text());
  }
  const std::vector<parallel::Group::RankState> ranks = local->ranks();
  if (!ranks.empty()) {
    facts.emplace_back("rank_transport", ranks.front().transport);
    facts.emplace_back("enable_expert_parallel",
                       ranks.front().has_whole_experts ? "true" : "false");
  }
  for (const parallel::Group::RankState& rank : ranks) {
    facts.emplace_back(fmt::format("rank_{}", rank.rank), text_of(rank));
  }
  if (const executor::KernelChoice* choice = local->kernel_choice()) {
    facts.emplace_back("kernel_choice", choice->how);
    facts.emplace_back("kernel_forms", choice->configs);
  }
  return facts;
}

std::shared_ptr<const api::ModelDescription> description_of(const checkpoint::Checkpoint& model) {
  checkpoint::ModelCard card = checkpoint::read_model_card(model);
  return std::make_shared<const api::ModelDescription>(
      api::ModelDescription{.license = std::move(card.license),
                            .license_name = std::move(card.license_name),
                            .license_link = std::move(card.license_link),
                            .license_text = std::move(card.license_text),
                            .text = std::move(card.text)});
}

server::ServedModel served_model(const cli::Arguments& arguments, node::LoadedModel& model,
                                 const node::NamedModel& names, const base::Clock& clock) {
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
      .control_tokens_in_prompts = arguments.has("--allow-control-tokens"),
      .unknown_fields = arguments.has("--strict-fields") ? api::UnknownFields::kRefuse
                                                         : api::UnknownFields::kWarn,
      .top_logprobs_max = static_cast<int>(arguments.integer("--max-logprobs")),
      .state = std::make_unique<server::ModelState>(clock),
  };
  served.description = description_of(model.checkpoint());
  served.ranks = [&model] { return rank_figures(model); };
  served.load_phases = model.load_phases();
  if (arguments.has("--current-date")) served.current_date = arguments.text("--current-date");
  served.fingerprint = node::ModelFingerprint::worded(
      model.fingerprint(),
      {.reasoning_field = served.reasoning_field == kReasoningField ? "" : served.reasoning_field,
       .current_date = served.current_date.value_or("")});
  served.runtime = [&model, print = served.fingerprint] { return runtime_facts(model, print); };
  return served;
}

// "13.1 GiB of 23.5 GiB: weights 12.1 GiB, ...".
std::string memory_line(const cost_model::Footprint& footprint) {
  const auto human = [](int64_t bytes) { return cli::format_bytes(static_cast<double>(bytes)); };
  const std::string swap =
      footprint.swap.bytes() == 0 ? "" : fmt::format(", swap {}", human(footprint.swap.bytes()));
  const std::string adapters = footprint.adapter_bytes == 0
                                   ? ""
                                   : fmt::format(", adapters {}", human(footprint.adapter_bytes));
  return fmt::format(
      "memory: {} of {}: weights {}, working memory {}, KV cache {} in {} ({} tokens; {} sequences "
      "of {} tokens at once){}{}",
      human(footprint.bytes()), human(footprint.memory_bytes), human(footprint.weights.bytes()),
      human(footprint.workspace.bytes()), human(footprint.kv.bytes()),
      tensor::kv_type_name(footprint.kv.dtype), footprint.kv.token_count(),
      footprint.max_sequences(), footprint.context_tokens_max, swap, adapters);
}

// "speculation: suffix and eagle3 guess at most 3 tokens, where that pays; 20.1 MiB of the working
// memory".
std::string speculation_line(const engine::Engine::Options& options,
                             const engine::ExecutorCapacity& capacity,
                             const cost_model::Footprint& footprint) {
  const auto drafting = static_cast<double>(footprint.workspace.drafting);
  return fmt::format("speculation: {} guess{} at most {} tokens, {}; {} of the working memory",
                     fmt::join(capacity.proposers, " and "),
                     capacity.proposers.size() > 1 ? "" : "es", capacity.draft_tokens_max,
                     options.adaptive_drafts ? "where that pays" : "always",
                     cli::format_bytes(drafting));
}

void log_disk(const kv_transfer::SlotFile& file, const engine::ExecutorCapacity& capacity,
              base::Log& log) {
  std::vector<std::string> slots;
  for (int group = 0; group < capacity.groups.size(); ++group) {
    slots.push_back(
        fmt::format("{} {}", capacity.blocks(group, kv::kDisk), capacity.groups[group].spec.name));
  }
  if (file.is_reclaimed()) {
    log.warning(
        fmt::format("--kv-disk: what an earlier start left is of no use: {}; its room is reclaimed",
                    file.why_reclaimed()));
  }
  log.info(fmt::format("disk tier: {} blocks, {}, {}", fmt::join(slots, " and "),
                       file.is_warm() ? "with what an earlier start left" : "empty",
                       file.is_direct() ? "past the page cache" : "through the page cache"));
}

// What was allocated, at debug level to the byte, as `pelton plan` foretells it; and how the engine
// is set.
void log_capacity(node::LoadedModel& model, const engine::Engine::Options& options,
                  base::Log& log) {
  if (const auto* local = model.local_executor()) {
    if (const auto ranks = local->ranks(); !ranks.empty()) {
      log.info(fmt::format("{} ranks{}, numbers by {}", ranks.size(),
                           ranks.front().has_whole_experts ? ", experts dealt out" : "",
                           ranks.front().transport));
    }
    log.info(memory_line(local->footprint()));
    log.debug(cost_model::log_line(local->footprint()));
    const engine::ExecutorCapacity& capacity = model.engine().capacity();
    if (capacity.draft_tokens_max > 0) {
      log.info(speculation_line(options, capacity, local->footprint()));
    }
  }
  if (const auto* local = model.local_executor(); local != nullptr && local->disk_file()) {
    log_disk(*local->disk_file(), model.engine().capacity(), log);
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

int64_t scrub_period_ns(const cli::Arguments& arguments) {
  return static_cast<int64_t>(arguments.number("--weight-scrub-hours") * 3600e9);
}

// Null: the model is a script. What it finds changes the server's health.
std::unique_ptr<node::WeightScrubber> make_weight_watch(const cli::Arguments& arguments,
                                                        node::LoadedModel& model,
                                                        server::ModelState& served,
                                                        const std::function<void()>& health_changed,
                                                        const base::Clock& clock, base::Log& log) {
  using State = node::WeightScrubber::State;
  using server::ModelHealth;
  const int64_t errors_max = arguments.integer("--numerical-errors-max");
  const bool watches = scrub_period_ns(arguments) > 0 || errors_max > 0;
  if (model.local_executor() == nullptr || !watches) return nullptr;
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
          .period_ns = scrub_period_ns(arguments),
          .errors = {.errors_max = static_cast<int>(errors_max)},
          .error_count = [&engine] { return engine.stats().scheduler.numerical_errors; },
          .on_change = on_change},
      model.has_weights_in_memory() ? model.own_weights() : checkpoint::WeightRanges(), clock, log);
}

// "gpt-oss-20b: avx512 kernels, 8 threads; context ...".
std::string line_of(node::LoadedModel& model, const std::string& id) {
  const executor::LocalExecutor* local = model.local_executor();
  const engine::ExecutorCapacity& capacity = model.engine().capacity();
  const std::string device =
      local == nullptr
          ? "scripted answers, no model"
          : fmt::format("{} kernels, {} threads", local->kernels_name(), local->threads());
  if (!capacity.generates()) {
    return fmt::format("{}: {}; embeddings and scores; texts of at most {} tokens, {} in a batch",
                       cli::without_controls(id), device,
                       cli::format_count(capacity.context_tokens_max),
                       cli::format_count(capacity.batch_tokens_max));
  }
  const std::string kv_bytes =
      local == nullptr
          ? ""
          : fmt::format(" ({})",
                        cli::format_bytes(static_cast<double>(local->footprint().kv.bytes())));
  return fmt::format("{}: {}; context {} tokens; {} conversations at once; KV cache of {} tokens{}",
                     cli::without_controls(id), device,
                     cli::format_count(capacity.context_tokens_max), capacity.sequences_max,
                     cli::format_count(capacity.kv_tokens()), kv_bytes);
}

std::vector<Flag> chat_answer_flags() {
  return {generation_config_flag(),
          {.name = "--current-date",
           .value = "YYYY-MM-DD",
           .help = "the date that models see; default the clock's"},
          {.name = "--reasoning-field",
           .value = "NAME",
           .help = "the field that reasoning comes in",
           .default_text = std::string(kReasoningField),
           .choices = {"reasoning_content", "reasoning"}},
          {.name = "--allow-control-tokens",
           .help = "token-id prompts of /v1/completions may hold control tokens",
           .kind = Flag::Kind::kSwitch},
          {.name = "--strict-fields",
           .help = "requests with a field that nobody documents are answered 400 instead of "
                   "with a warning",
           .kind = Flag::Kind::kSwitch},
          {.name = "--max-logprobs",
           .value = "N",
           .help = "alternatives to a token that a request may ask for",
           .kind = Flag::Kind::kInteger,
           .default_text = "20",
           .most = 20}};
}

// What may be said of one model alone: all but what the models share.
std::vector<Flag> flags_of_one_model() {
  std::vector<Flag> flags = answer_flags();
  for (auto more : {model_flags(), batch_flags(), queue_flags(), prompt_flags(), speech_flags(),
                    transcription_flags(), lora_flags()}) {
    std::move(more.begin(), more.end(), std::back_inserter(flags));
  }
  std::erase_if(flags, [](const Flag& flag) { return flag.name == "--threads"; });
  return flags;
}

// A flag that serve has and that says something of all models, or of the name that the request has
// a field for.
Result<void> refuse_server_flags(const api::LoadModelRequest& asked,
                                 const std::vector<Flag>& flags) {
  const std::vector<Flag> all = serve_verb().flags;
  for (const auto& [field, text] : asked.options) {
    if (cli::flag_named(flags, field).flag != nullptr) continue;
    const Flag* const flag = cli::flag_named(all, field).flag;
    if (flag == nullptr) continue;
    const std::string_view own = flag->name == "--served-model-name" ? "name"
                                 : flag->name == "--alias"           ? "aliases"
                                                                     : "";
    return Error{ErrorCode::kInvalidArgument,
                 own.empty() ? fmt::format("'{}' belongs to the whole server, not to one model: "
                                           "give {} to pelton serve",
                                           field, flag->name)
                             : fmt::format("'{}' is the field '{}' here", field, own),
                 field};
  }
  return {};
}

// In the words of the request's body, whose fields are flags: "MODEL" is "model",
// "--kv-cache-memory" "kv_cache_memory", or whichever of its names the body has.
Error in_fields(Error error, const std::vector<Flag>& flags, const api::LoadModelRequest& asked) {
  const Flag* const flag = cli::flag_named(flags, cli::config_name(error.field)).flag;
  const bool is_said = std::ranges::any_of(
      asked.options, [&](const auto& option) { return option.first == error.field; });
  if (flag != nullptr && !is_said) {
    error.field = cli::field_name(*flag, flags, asked.options);
  } else if (flag == nullptr && !is_said) {
    error.field = cli::config_name(error.field);
    std::replace(error.field.begin(), error.field.end(), '-', '_');
  }
  const bool is_models =
      error.code == ErrorCode::kNotFound || error.code == ErrorCode::kBadCheckpoint;
  if (error.field.empty() && is_models) error.field = "model";
  error.message = cli::with_field_names(error.message, flags, asked.options);
  return error;
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

std::vector<Flag> answer_flags() {
  std::vector<Flag> flags = vector_flags();
  for (Flag& flag : chat_answer_flags()) flags.push_back(std::move(flag));
  return flags;
}

Result<std::vector<node::NamedModel>> named_models(const cli::Arguments& arguments) {
  node::GivenNames given{.models = arguments.list("MODEL"), .served_names = {}, .aliases = {}};
  if (arguments.has("--served-model-name")) {
    given.served_names = arguments.list("--served-model-name");
  }
  given.aliases = arguments.list("--alias");
  TRY_ASSIGN(std::vector<node::NamedModel> named, node::name_models(given));
  TRY(check_lora_bases(arguments, named));
  TRY(check_speech_decoders(arguments, named));
  return named;
}

Result<node::LoadedModel::Options> ModelHost::options_of(const cli::Arguments& arguments,
                                                         const base::Clock& clock) {
  TRY_ASSIGN(node::LoadedModel::Options options, model_options(arguments, clock));
  TRY(read_rank_flags(arguments, options.executor.ranks));
  TRY(read_batch_flags(arguments, options));
  TRY(read_queue_flags(arguments, options));
  TRY(read_prompt_flags(arguments, options));
  TRY(read_lora_memory_flags(arguments, options.executor));
  options.step_log = arguments.text("--step-log");
  TRY_ASSIGN(options.engine.hash_seed, fleet_block_seed(arguments));
  TRY(read_kv_disk_flags(arguments, options));
  TRY(read_kv_port(arguments, options));
  if (!options.engine.hash_seed) options.engine.hash_seed = kv_events_seed(arguments);
  return options;
}

// What goes first stands last.
struct ModelHost::Hosted {
  explicit Hosted(std::unique_ptr<node::LoadedModel> model) : loaded(std::move(model)) {}
  explicit Hosted(std::unique_ptr<node::LoadedSpeechModel> model) : speech(std::move(model)) {}
  // Their memory is the model's: it sleeps, or is gone.
  ~Hosted() {
    if (ranks != nullptr) ranks->watch(nullptr);
    if (keep_histogram) keep_histogram();
    if (served && served->adapters != nullptr) served->adapters->sleep();
  }

  std::unique_ptr<node::LoadedModel> loaded;        // null: it is the next
  std::unique_ptr<node::LoadedSpeechModel> speech;  // likewise
  std::string line;                                 // what a person wants to know of it
  std::shared_ptr<RankWatch> ranks;                 // null: one process computes
  std::function<void()> keep_histogram;             // of experts; or empty
  std::optional<server::ServedModel> served;
  std::unique_ptr<server::Watchdog> watchdog;
  std::unique_ptr<node::WeightScrubber> weights;
};

ModelHost::ModelHost(Parts parts)
    : parts_(std::move(parts)),
      budget_(memory_of_ranks(parts_.arguments)),
      loader_({.on_change = [this] { report_health(); }, .sleep_after_ns = parts_.sleep_after_ns},
              parts_.server.services()) {}

ModelHost::~ModelHost() = default;

Result<std::vector<std::string>> ModelHost::load(const std::vector<node::NamedModel>& models) {
  const auto arguments = std::make_shared<const cli::Arguments>(parts_.arguments);
  struct Start {
    std::shared_ptr<std::string> line = std::make_shared<std::string>();
    std::future<Result<void>> outcome = {};
  };
  std::vector<Start> starts;
  for (const node::NamedModel& named : models) {
    const bool is_only = models.size() == 1;
    TRY_ASSIGN(node::LoadedModel::Options options, options_of(*arguments, parts_.clock));
    options.step_log = node::step_log_of(options.step_log, named.id, is_only);
    options.context_is_shared = !is_only;
    Plan plan{.named = named,
              .arguments = arguments,
              .options = std::move(options),
              .is_only = is_only,
              .has_unnamed_modules = is_only,
              .has_unnamed_folders = is_only,
              .has_unnamed_speech = is_only};
    Start& start = starts.emplace_back();
    const auto outcome = std::make_shared<std::promise<Result<void>>>();
    start.outcome = outcome->get_future();
    TRY(loader_.load(order_of(std::move(plan), start.line), server::ModelCatalogue::When::kAtStart,
                     [outcome](const Result<void>& loaded) { outcome->set_value(loaded); }));
  }
  std::optional<Error> first;
  std::vector<std::string> lines;
  for (size_t i = 0; i < models.size(); ++i) {
    const Result<void> loaded = starts[i].outcome.get();
    if (loaded.ok()) {
      lines.push_back(std::move(*starts[i].line));
      continue;
    }
    if (!first) first = loaded.error();
    if (parts_.interrupt.pending()) return loaded.error();
    if (models.size() == 1) break;
    parts_.log.error(fmt::format("'{}' is not served: {}", models[i].id, loaded.error().message));
  }
  if (lines.empty()) return *first;
  return lines;
}

Result<server::ModelLoader::Order> ModelHost::order(const api::LoadModelRequest& asked) {
  node::NamedModel named = node::name_model(asked.model);
  if (!asked.name.empty()) {
    named.id = asked.name;
    named.aliases.clear();
  }
  for (const std::string& alias : asked.aliases) named.aliases.push_back(alias);
  const std::vector<Flag> flags = flags_of_one_model();
  TRY(refuse_server_flags(asked, flags));
  Result<cli::Arguments> arguments = cli::with_values(flags, parts_.arguments, asked.options);
  if (!arguments.ok()) return in_fields(arguments.error(), flags, asked);
  Result<node::LoadedModel::Options> options = options_of(*arguments, parts_.clock);
  if (!options.ok()) return in_fields(options.error(), flags, asked);
  Plan plan{.named = std::move(named),
            .arguments = std::make_shared<const cli::Arguments>(*std::move(arguments)),
            .options = *std::move(options)};
  if (plan.options.executor.ranks.meeting) {
    return Error{ErrorCode::kUnsupported,
                 "ranks that are started one by one compute the model that they began with",
                 {}};
  }
  plan.options.executor.disk = {};   // it is the first model's
  plan.options.executor.peers = {};  // likewise
  plan.options.step_log = node::step_log_of(plan.options.step_log, plan.named.id, false);
  // Of two ways to say how large the KV cache is, the request's is the one that is meant.
  const auto says = [&](std::string_view name) {
    return std::ranges::any_of(asked.options, [&](const auto& option) {
      return cli::flag_named(flags, option.first).flag->name == name;
    });
  };
  plan.options.context_is_shared = !says("--max-model-len");
  // What the server's flags say of adapters is of the models that it began with.
  plan.has_unnamed_modules = says("--lora-modules");
  plan.has_unnamed_folders = says("--lora-folder");
  plan.has_unnamed_speech = says("--speech-decoder");
  const bool says_bytes = says("--kv-cache-memory");
  const bool says_share = says("--memory-utilization");
  if (says_bytes && !says_share) plan.options.executor.memory_utilization.reset();
  if (says_share && !says_bytes) plan.options.executor.kv_bytes.reset();
  server::ModelLoader::Order made = order_of(std::move(plan), std::make_shared<std::string>());
  made.load =
      [load = std::move(made.load), flags, asked](
          const server::ModelLoader::Stop& stop) -> Result<std::shared_ptr<server::ServedModel>> {
    auto loaded = load(stop);
    if (!loaded.ok()) return in_fields(loaded.error(), flags, asked);
    return loaded;
  };
  return made;
}

// `line`: filled in by the load.
server::ModelLoader::Order ModelHost::order_of(Plan plan, std::shared_ptr<std::string> line) {
  server::ModelCatalogue::Names names{.id = plan.named.id, .aliases = plan.named.aliases};
  return {.names = std::move(names),
          .load = [this, plan = std::move(plan),
                   line = std::move(line)](const server::ModelLoader::Stop& stop)
              -> Result<std::shared_ptr<server::ServedModel>> {
            TRY_ASSIGN(const std::shared_ptr<Hosted> hosted, load_one(plan, stop));
            *line = hosted->line;
            return std::shared_ptr<server::ServedModel>(hosted, &*hosted->served);
          }};
}

const std::shared_ptr<executor::ComputeThreads>& ModelHost::compute_threads(
    const executor::LocalExecutor::Options& options) {
  if (compute_threads_ == nullptr) {
    compute_threads_ = executor::leader_threads(options.ranks, options.threads);
    compute_threads_->set_encoding_share(parts_.arguments.number("--embed-share"));
  }
  return compute_threads_;
}

Result<std::shared_ptr<ModelHost::Hosted>> ModelHost::load_one(
    const Plan& plan, const server::ModelLoader::Stop& stop) {
  std::optional<base::LogContext> context;
  if (!plan.is_only) context.emplace(cli::without_controls(plan.named.id));
  node::LoadedModel::Options options = plan.options;
  options.budget = &budget_;
  options.name = plan.named.id;
  options.tokenizers = &parts_.tokenizers;
  options.make_executor = modelled_executor(*plan.arguments, parts_.clock, &parts_.faults);
  if (!options.make_executor) {  // of scripted answers nothing is computed
    options.executor.compute_threads = compute_threads(options.executor);
  }
  std::shared_ptr<RankWatch> ranks;
  if (options.executor.ranks.several()) {
    ranks = std::make_shared<RankWatch>(parts_.log);
    options.executor.ranks.scrub_period_ns = scrub_period_ns(*plan.arguments);
    options.executor.ranks.on_lost = [ranks](const Error& error) { ranks->lost(error); };
  }
  TRY_ASSIGN(const std::optional<executor::ExpertHistogram> histogram,
             histogram_of(*plan.arguments, plan.is_only));
  if (histogram) options.executor.ranks.chosen_before = histogram->before();
  const auto stopped = [&] { return parts_.interrupt.pending() || stop(); };
  if (options.executor.ranks.meeting) options.executor.ranks.meeting->stopped = stopped;
  // What was fetched to be loaded, and not kept, is there until the model is whole.
  WeightsFrom::Fetched fetched{.folder = plan.named.model};
  if (parts_.weights != nullptr) {
    TRY_ASSIGN(fetched, parts_.weights->fetch(plan.named.model, stopped));
    options.phases_before = fetched.phases;
  }
  TRY(fetch_if_missing(fetched.folder, options.revision, stopped, parts_.clock, parts_.log));
  if (const auto folder = checkpoint::resolve_model(fetched.folder, options.revision);
      folder.ok() && node::is_speech_model(*folder)) {
    return load_speech(plan, *folder);
  }
  TRY_ASSIGN(auto loaded, load_model(fetched.folder, options, stopped, parts_.clock, parts_.log));
  auto hosted = std::make_shared<Hosted>(std::move(loaded));
  hosted->ranks = ranks;
  if (ranks != nullptr) ranks->watch(&hosted->loaded->engine());
  if (histogram) hosted->keep_histogram = keeping(*histogram, *hosted->loaded, parts_.log);
  // On a terminal the banner says it in fewer words.
  if (!cli::is_terminal(stderr)) log_capacity(*hosted->loaded, options.engine, parts_.log);
  hosted->served.emplace(served_model(*plan.arguments, *hosted->loaded, plan.named, parts_.clock));
  hosted->served->limits = parts_.limits(options.engine);
  TRY(read_vector_use(*plan.arguments, *hosted->loaded, *hosted->served, parts_.log));
  SpeechOwner speaker{.names = plan.named.aliases, .has_unnamed = plan.has_unnamed_speech};
  speaker.names.push_back(plan.named.id);
  TRY(read_speech(*plan.arguments, speaker,
                  {.stopped = stopped, .clock = parts_.clock, .log = parts_.log}, *hosted->served));
  TRY(add_adapters(plan, *hosted, stopped));
  TRY(finish(plan, *hosted));
  hosted->line = line_of(*hosted->loaded, plan.named.id);
  return hosted;
}

Result<std::shared_ptr<ModelHost::Hosted>> ModelHost::load_speech(const Plan& plan,
                                                                  const std::string& folder) {
  const cli::Arguments& arguments = *plan.arguments;
  if (!arguments.knows("--max-audio-seconds")) {
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("'{}' turns speech into text, which pelton serve and pelton transcribe "
                    "do",
                    plan.named.id),
        "MODEL"};
  }
  const executor::LocalExecutor::Options& executor = plan.options.executor;
  node::LoadedSpeechModel::Options options = speech_options(arguments, executor.kernels);
  options.threads = compute_threads(executor);
  options.budget = &budget_;
  options.name = plan.named.id;
  TRY_ASSIGN(auto loaded, node::LoadedSpeechModel::load(folder, options, parts_.clock, parts_.log));
  auto hosted = std::make_shared<Hosted>(std::move(loaded));
  hosted->served.emplace(
      served_speech_model(arguments, folder, *hosted->speech, plan.named, parts_.clock));
  std::ranges::copy(parts_.limits(plan.options.engine), std::back_inserter(hosted->served->limits));
  hosted->line = speech_line(arguments, *hosted->speech, plan.named.id);
  if (!cli::is_terminal(stderr)) parts_.log.info(hosted->line);
  return hosted;
}

Result<void> ModelHost::add_adapters(const Plan& plan, Hosted& hosted,
                                     const std::function<bool()>& stopped) {
  LoraOwner owner{.names = plan.named.aliases,
                  .has_unnamed_modules = plan.has_unnamed_modules,
                  .has_unnamed_folders = plan.has_unnamed_folders};
  owner.names.push_back(plan.named.id);
  if (*plan.adapters == nullptr) {
    TRY_ASSIGN(*plan.adapters, make_adapters(*plan.arguments, *hosted.loaded, plan.options, owner,
                                             stopped, {.clock = parts_.clock, .log = parts_.log}));
  } else {
    (*plan.adapters)->wake();
  }
  server::ServedModel& served = *hosted.served;
  served.adapters = *plan.adapters;
  if (served.adapters == nullptr) return {};
  std::ranges::copy(adapter_limits(plan.options.executor), std::back_inserter(served.limits));
  served.runtime = [of_model = std::move(served.runtime),
                    facts = adapter_facts(*plan.arguments, plan.options.executor, owner)] {
    auto all = of_model();
    all.insert(all.end(), facts.begin(), facts.end());
    return all;
  };
  return {};
}

// What watches it, and what its answers begin with.
Result<void> ModelHost::finish(const Plan& plan, Hosted& hosted) {
  const cli::Arguments& arguments = *plan.arguments;
  node::LoadedModel& loaded = *hosted.loaded;
  server::ServedModel& served = *hosted.served;
  if (arguments.has("--pin-prefix")) {
    TRY(pin_prefix(arguments.text("--pin-prefix"), served, parts_.interrupt, parts_.clock,
                   parts_.log));
  }
  hosted.watchdog = make_watchdog(arguments, loaded.engine(), parts_.clock, parts_.log);
  served.watchdog = hosted.watchdog.get();
  served.sampling = sampling_defaults(arguments, loaded.checkpoint(), parts_.log);
  hosted.weights = make_weight_watch(
      arguments, loaded, *served.state, [this] { report_health(); }, parts_.clock, parts_.log);
  return {};
}

server::AdminServer::Parts ModelHost::administration(const net::HttpServer& listener) {
  const double drain_s = parts_.arguments.number("--drain-seconds");
  return {.services = parts_.server.services(),
          .listener = listener,
          .loader = loader_,
          .order = [this](const api::LoadModelRequest& asked) { return order(asked); },
          .memory = [this] { return memory(); },
          .drain_ms = static_cast<int64_t>(drain_s * 1000),
          .faults = modelled_executor(parts_.arguments, parts_.clock, nullptr) ? &parts_.faults
                                                                               : nullptr};
}

server::ModelMemory ModelHost::memory() const {
  server::ModelMemory memory{.budget = budget_.bytes(), .left = budget_.left(), .by_model = {}};
  for (const node::MemoryBudget::Use& use : budget_.uses()) {
    memory.by_model.emplace(use.model, use.bytes);
  }
  return memory;
}

void ModelHost::drain(int64_t ms) {
  loader_.stop_loading();
  loader_.drain(ms);
}

void ModelHost::report_health() {
  const std::lock_guard lock(health_mutex_);
  if (reports_health_) parts_.health_changed();
}

void ModelHost::stop_watching() {
  const std::lock_guard lock(health_mutex_);
  reports_health_ = false;
}

}  // namespace pelton::apps
