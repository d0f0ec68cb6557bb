#include "executor/local_executor.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/machine.h"
#include "checkpoint/fingerprint.h"
#include "cost_model/draft_rows.h"
#include "engine/scheduler_counters.h"
#include "executor/device_step_model.h"
#include "executor/host_model.h"
#include "executor/kv_identity.h"
#include "executor/loaded_adapter.h"
#include "executor/prompt_scores.h"
#include "executor/step_overlap.h"
#include "executor/weights_identity.h"
#include "kernels/kernels.h"
#include "lora/adapter_file.h"

namespace pelton::executor {
namespace {

// As many short texts as may share a step; a slot of theirs costs next to nothing.
constexpr int kPooledSequencesMax = 128;

int pooled_sequences_max(const LocalExecutor::Options& options,
                         const families::ModelConfig& config) {
  if (config.is_encoder()) return cost_model::encoder_sequences_max(options.batch_tokens_max);
  return std::min(options.batch_tokens_max, kPooledSequencesMax);
}

int draft_rows_max(const LocalExecutor::Options& options) {
  return cost_model::draft_rows_max(options.sequences_max, options.speculation.tokens_max,
                                    options.batch_tokens_max);
}

// Tokens that a model's logits have, but its vocabulary does not, are never sampled.
int sampled_vocab(const LocalExecutor::Options& options, int vocab_size) {
  return options.sampled_vocab > 0 ? std::min(vocab_size, options.sampled_vocab) : vocab_size;
}

// On a device the residual stream is not seen.
Result<void> check_device_proposers(const speculative::Config& config) {
  TRY_ASSIGN(const std::vector<speculative::Config> parts, config.parts());
  for (const speculative::Config& part : parts) {
    using Method = speculative::Config::Method;
    if (part.method != Method::kEagle3 && part.method != Method::kMedusa) continue;
    return Error{ErrorCode::kUnsupported,
                 fmt::format("--speculative-config: {} heads guess beside a model on the "
                             "processors (--device cpu), not beside one on a GPU: give another "
                             "method",
                             part.method == Method::kEagle3 ? "EAGLE-3" : "Medusa"),
                 "speculative-config"};
  }
  return {};
}

// What one process does and several ranks do not, by name.
Result<void> check_ranks(const LocalExecutor::Options& options) {
  if (!options.ranks.several()) return {};
  const auto refused = [](const char* what, const char* field) {
    return Error{ErrorCode::kUnsupported, fmt::format("--tensor-parallel-size: {}", what), field};
  };
  if (options.device) return refused("ranks compute on the processors: --device cpu", "device");
  if (options.adapters_max > 0) {
    return refused("LoRA adapters are not shared out among ranks: without --enable-lora",
                   "enable-lora");
  }
  if (!options.disk.folder.empty()) {
    return refused("blocks on a disk are one process's: without --kv-disk", "kv-disk");
  }
  if (!options.peers.address.empty()) {
    return refused("blocks travel between workers of one process each: without --kv-port",
                   "kv-port");
  }
  return {};
}

std::vector<std::string> names_of(const speculative::Proposer* proposer) {
  static_assert(speculative::kPartsMax <= engine::kProposersMax);
  if (proposer == nullptr) return {};
  const std::vector<std::string_view> names = proposer->part_names();
  return {names.begin(), names.end()};
}

// An encoder keeps nothing from step to step that could be found again or make room.
LocalExecutor::Options fitted(LocalExecutor::Options options, const families::ModelConfig& model) {
  if (options.ranks.several() && options.threads == 0) {  // of each, on its share of processors
    options.threads = static_cast<int>(std::max<size_t>(options.ranks.own_processors().size(), 1));
  }
  if (!model.is_encoder()) return options;
  options.prefix_cache = false;
  options.swap_bytes = 0;
  if (!options.batch_from_memory) return options;
  options.batch_tokens_max = cost_model::encoder_step_tokens(
      model, options.memory_bytes.value_or(base::memory_limit_bytes()));
  return options;
}

Result<std::string> kv_identity(const checkpoint::Checkpoint& checkpoint, const StepModel& model) {
  TRY_ASSIGN(std::string files, checkpoint::fingerprint(checkpoint));
  // Sizes and times that a copy keeps are not enough where wrong blocks would be wrong answers: a
  // file that was replaced or written to has another number or another time of change.
  for (const base::MappedFile& file : checkpoint.files()) {
    struct stat status {};
    if (::stat(file.path().c_str(), &status) != 0) continue;
    files += fmt::format(" {}.{}.{}", status.st_ino, status.st_ctim.tv_sec, status.st_ctim.tv_nsec);
  }
  const cost_model::Footprint& footprint = model.footprint();
  return KvIdentity{.files = std::move(files),
                    .weights_bytes = footprint.weights.bytes(),
                    .activation_bits = checkpoint.activation_bits(),
                    .kv = footprint.kv.dtype,
                    .kernels = std::string(model.kernels_name())}
      .text();
}

Result<std::unique_ptr<kv_transfer::BlockStore>> open_disk(
    const checkpoint::Checkpoint& checkpoint, const LocalExecutor::Options& options,
    StepModel& model, kv::PerGroup<kv::GroupCapacity>& groups) {
  if (options.disk.folder.empty()) return std::unique_ptr<kv_transfer::BlockStore>();
  if (checkpoint.config().is_encoder()) {
    return Error{ErrorCode::kUnsupported, "--kv-disk: an encoder keeps no keys and values",
                 "kv-disk"};
  }
  if (model.host_blocks() == nullptr) {
    return Error{ErrorCode::kUnsupported,
                 options.device ? "--kv-disk: the disk tier is the processors' only (--device cpu)"
                                : "--kv-disk: --swap-space holds no block of each KV group, and "
                                  "blocks pass through it; give it more",
                 "kv-disk"};
  }
  TRY_ASSIGN(const kv::PerGroup<int> slots, kv_transfer::slot_counts(groups, options.disk.bytes));
  for (int group = 0; group < groups.size(); ++group) {
    groups[group].block_counts[kv::kDisk] = slots[group];
  }
  kv_transfer::BlockStore::Options store{
      .disk = options.disk, .block_tokens = model.footprint().kv.block_tokens, .groups = groups};
  TRY_ASSIGN(const std::string identity, kv_identity(checkpoint, model));
  store.disk.identity += identity;
  TRY_ASSIGN(auto opened, kv_transfer::BlockStore::open(store, *model.host_blocks()));
  // What lies there may share its room otherwise.
  const kv_transfer::FileHeader& header = opened->file().header();
  for (int group = 0; group < groups.size(); ++group) {
    groups[group].block_counts[kv::kDisk] =
        static_cast<int>(header.groups[static_cast<size_t>(group)].slot_count);
  }
  return opened;
}

std::string rope_text(const std::optional<families::RopeConfig>& rope) {
  if (!rope) return "as the others";
  std::string divisors;
  for (const double divisor : rope->divisors) divisors += fmt::format(" {}", divisor);
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {}", rope->theta,
                     static_cast<int>(rope->pairs), static_cast<int>(rope->scaling), rope->factor,
                     rope->original_context, rope->low_freq_factor, rope->high_freq_factor,
                     rope->beta_fast, rope->beta_slow, rope->truncate, rope->attention_factor,
                     rope->mscale_all_dim,
                     divisors.empty() ? "none" : base::sha256(divisors).substr(0, 16));
}

// What two workers must have in common for a block of one to be one of the other's, each with its
// name, so that who refuses says what differs.
kv_transfer::PeerLayout peer_layout(const checkpoint::Checkpoint& checkpoint,
                                    const StepModel& model,
                                    const kv::PerGroup<kv::GroupCapacity>& groups) {
  const cost_model::Footprint& footprint = model.footprint();
  const families::ModelConfig& config = checkpoint.config();
  std::string windows;
  for (const kv::GroupCapacity& group : groups) {
    windows += fmt::format("{} {} {}, ", group.spec.name, group.spec.sliding_window,
                           group.spec.block_bytes);
  }
  std::string files;
  constexpr size_t kConfigBytesMax = size_t{1} << 20;
  for (const std::string& folder : checkpoint.text_folders()) {
    const Result<std::string> text = base::read_file(folder + "/config.json", kConfigBytesMax);
    if (text.ok()) files += base::sha256(*text);
  }
  return {{"block size", std::to_string(footprint.kv.block_tokens)},
          {"KV type", std::string(tensor::kv_type_name(footprint.kv.dtype))},
          {"layers", std::to_string(config.layer_count())},
          {"KV groups (name, window, bytes of a block)", windows},
          {"KV heads", fmt::format("{} of {}", config.kv_head_count, config.head_size)},
          {"rotary setting", fmt::format("{} of {}; sliding {}", rope_text(config.rope),
                                         config.rotary_size(), rope_text(config.sliding_rope))},
          {"arithmetic", fmt::format("{} {}", model.kernels_name(), checkpoint.activation_bits())},
          {"configuration", base::sha256(files)},
          {"weights", weights_identity(checkpoint, {})}};
}

Result<std::unique_ptr<kv_transfer::BlockExchange>> open_peers(
    const checkpoint::Checkpoint& checkpoint, const LocalExecutor::Options& options,
    StepModel& model, const kv::PerGroup<kv::GroupCapacity>& groups) {
  if (options.peers.address.empty()) return std::unique_ptr<kv_transfer::BlockExchange>();
  if (checkpoint.config().is_encoder()) {
    return Error{ErrorCode::kUnsupported, "--kv-port: an encoder keeps no keys and values",
                 "kv-port"};
  }
  if (model.host_blocks() == nullptr) {
    return Error{ErrorCode::kUnsupported,
                 options.device ? "--kv-port: blocks travel between the processors' workers only "
                                  "(--device cpu)"
                                : "--kv-port: --swap-space holds no block of each KV group, and "
                                  "what comes lands there; give it more",
                 "kv-port"};
  }
  kv_transfer::BlockExchange::Options exchange{
      .exchange = options.peers, .groups = {}, .layout = {}};
  for (const kv::GroupCapacity& group : groups) exchange.groups.push_back(group.spec);
  exchange.layout = peer_layout(checkpoint, model, groups);
  return kv_transfer::BlockExchange::open(exchange, *model.host_blocks());
}

}  // namespace

Result<cost_model::MemoryRequest> LocalExecutor::memory_request(
    const Options& given, const families::ModelConfig& model) {
  const Options options = fitted(given, model);
  if (model.is_encoder() && options.speculation.on()) {
    return Error{ErrorCode::kUnsupported,
                 "--speculative-config: an encoder generates nothing that could be guessed",
                 "speculative-config"};
  }
  if (model.is_encoder() && options.adapters_max > 0) {
    return Error{ErrorCode::kUnsupported, "--enable-lora: encoders have no adapters",
                 "enable-lora"};
  }
  TRY_ASSIGN(cost_model::MemoryRequest request, memory_request(options));
  if (options.adapters_max > 0) {
    // Those that are kept and one that is being read, with what its file is read through.
    request.adapter_bytes =
        (options.adapters_kept_max + 1) * adapter_place_bytes(model, options.adapter_limits) +
        lora::kFileTileBytes;
  }
  TRY_ASSIGN(const kernels::KernelChoice choice, kernels::parse_kernel_choice(options.kernels));
  base::ThreadPool pool({.threads = 1});
  TRY_ASSIGN(const auto kernels, kernels::make_kernels(choice, pool));
  TRY_ASSIGN(
      request.draft_bytes,
      speculative::bytes_for(options.speculation, {.slot_count = options.sequences_max,
                                                   .batch_tokens_max = options.batch_tokens_max,
                                                   .threads = request.threads,
                                                   .target = &model,
                                                   .kernels = request.kernels,
                                                   .kv_dtype = kernels->kv_dtype()}));
  return request;
}

Result<cost_model::MemoryRequest> LocalExecutor::memory_request(const Options& options) {
  TRY_ASSIGN(const kernels::KernelChoice choice, kernels::parse_kernel_choice(options.kernels));
  base::ThreadPool pool({.threads = 1});
  TRY_ASSIGN(const auto kernels, kernels::make_kernels(choice, pool));
  const bool is_reference = kernels->name() == "reference";
  constexpr int kFastBlockTokens = 16;  // what they read at a time
  if (!is_reference && options.block_tokens != kFastBlockTokens) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--block-size {}: the {} kernels read blocks of {} tokens",
                             options.block_tokens, kernels->name(), kFastBlockTokens),
                 "block-size"};
  }
  const int threads = options.compute_threads != nullptr ? options.compute_threads->pool().size()
                      : options.threads > 0              ? options.threads
                                            : static_cast<int>(base::usable_cpus().size());
  const auto kind =
      is_reference ? cost_model::KernelKind::kReference : cost_model::KernelKind::kCpu;
  return cost_model::MemoryRequest{
      .sequences_max = options.sequences_max,
      .draft_rows_max = draft_rows_max(options),
      .batch_tokens_max = options.batch_tokens_max,
      .block_tokens = options.block_tokens,
      .kv_dtype = options.kv_dtype.value_or(kernels->kv_dtype()),
      .kernels = kind,
      .threads = threads,
      .prefix_cache = options.prefix_cache,
      .context_tokens = options.context_tokens,
      .swap_bytes = options.swap_bytes,
      .adapter_rank_max = options.adapters_max > 0 ? options.adapter_limits.rank_max : 0,
      .expert_adapters = options.adapter_limits.targets != lora::Targets::kAttention,
      .kv_bytes = options.kv_bytes,
      .memory_utilization = options.memory_utilization,
      .memory_bytes = options.memory_bytes.value_or(base::memory_limit_bytes())};
}

Result<std::unique_ptr<LocalExecutor>> LocalExecutor::create(
    const checkpoint::Checkpoint& checkpoint, const Options& given) {
  const Options options = fitted(given, checkpoint.config());
  if (options.device) TRY(check_device_proposers(options.speculation));
  TRY(check_ranks(options));
  TRY_ASSIGN(cost_model::MemoryRequest request, memory_request(options, checkpoint.config()));
  std::shared_ptr<ComputeThreads> threads = options.compute_threads;
  if (threads == nullptr) threads = leader_threads(options.ranks, request.threads);
  base::ThreadPool& pool = threads->pool();
  std::unique_ptr<StepModel> model;
  // Loading uses them, too.
  const ComputeThreads::Turn turn = threads->take_turn();
  if (options.device) {
    request.kv_dtype = options.kv_dtype.value_or(tensor::DType::kF16);
    TRY_ASSIGN(const auto mode, cuda::parse_tuning_mode(options.kernel_choice));
    TRY_ASSIGN(model,
               DeviceStepModel::load(checkpoint, *options.device, request,
                                     {.mode = mode, .folder = options.kernel_choice_folder}, pool));
  } else {
    TRY_ASSIGN(const cost_model::Footprint footprint, cost_model::footprint(checkpoint, request));
    TRY(cost_model::check_fits(footprint));
    TRY_ASSIGN(const kernels::KernelChoice choice, kernels::parse_kernel_choice(options.kernels));
    const HostModel::Options host{.kernels = choice,
                                  .batch_tokens_max = options.batch_tokens_max,
                                  .logit_rows_max = options.sequences_max + request.draft_rows_max,
                                  .adapter_rank_max = request.adapter_rank_max,
                                  .expert_adapters = request.expert_adapters};
    if (options.ranks.several()) {
      TRY_ASSIGN(model, RankedModel::load(checkpoint, options.ranks, options.kernels, host,
                                          footprint, pool));
    } else {
      TRY_ASSIGN(model, HostModel::load(checkpoint, host, footprint, pool));
    }
  }
  std::shared_ptr<speculative::Proposer> proposer = options.proposer;
  if (proposer == nullptr) {
    const int vocab_size = checkpoint.config().vocab_size;
    const speculative::ModelFacts facts{.slot_count = options.sequences_max,
                                        .vocab_size = vocab_size,
                                        .sampled_vocab = sampled_vocab(options, vocab_size),
                                        .batch_tokens_max = options.batch_tokens_max,
                                        .kernels = options.kernels,
                                        .pool = &pool,
                                        .target = &checkpoint,
                                        .target_head = model->head()};
    TRY_ASSIGN(proposer, speculative::make_proposer(options.speculation, facts));
    const int64_t bytes = proposer == nullptr ? 0 : proposer->bytes();
    CHECK(bytes == request.draft_bytes, "what guessing keeps is not as planned");
  }
  std::optional<SparseHead> sparse_head;
  if (const families::ModelConfig& config = checkpoint.config(); config.is_encoder()) {
    TRY_ASSIGN(sparse_head, SparseHead::load(checkpoint.folder(), config.hidden_size));
  }
  kv::PerGroup<kv::GroupCapacity> groups = model->footprint().kv_capacity();
  TRY_ASSIGN(auto disk, open_disk(checkpoint, options, *model, groups));
  TRY_ASSIGN(auto peers, open_peers(checkpoint, options, *model, groups));
  return std::unique_ptr<LocalExecutor>(new LocalExecutor(
      options, std::move(threads), std::move(model), std::move(proposer), checkpoint.config(),
      std::move(sparse_head), groups, std::move(disk), std::move(peers)));
}

LocalExecutor::LocalExecutor(const Options& options, std::shared_ptr<ComputeThreads> threads,
                             std::unique_ptr<StepModel> model,
                             std::shared_ptr<speculative::Proposer> proposer,
                             const families::ModelConfig& config,
                             std::optional<SparseHead> sparse_head,
                             const kv::PerGroup<kv::GroupCapacity>& groups,
                             std::unique_ptr<kv_transfer::BlockStore> disk,
                             std::unique_ptr<kv_transfer::BlockExchange> peers)
    : compute_threads_(std::move(threads)),
      work_(config.is_encoder() ? ComputeThreads::Work::kEncodes
                                : ComputeThreads::Work::kGenerates),
      pool_(compute_threads_->pool()),
      model_(std::move(model)),
      disk_(std::move(disk)),
      peers_(std::move(peers)),
      capacity_{.block_tokens = footprint().kv.block_tokens,
                .groups = groups,
                .sequences_max = options.sequences_max,
                .pooled_sequences_max = pooled_sequences_max(options, config),
                .embedding_size = config.hidden_size,
                .label_count = config.label_count,
                .weighs_tokens = sparse_head.has_value(),
                .whole_prompts = config.is_encoder(),
                .batch_tokens_max = options.batch_tokens_max,
                .context_tokens_max = footprint().context_tokens_max,
                .draft_tokens_max = options.speculation.tokens_max,
                .draft_rows_max = draft_rows_max(options),
                .proposers = names_of(proposer.get()),
                .adapters_max = options.adapters_max,
                .vocab_size = config.vocab_size},
      sampled_vocab_(sampled_vocab(options, config.vocab_size)),
      slots_(capacity_.slot_count()),
      grammars_({.slots = capacity_.slot_count(),
                 .sampling_slots = capacity_.sequences_max,
                 .vocab_size = config.vocab_size,
                 .sampled_vocab = sampled_vocab_,
                 .work_max = options.guide_work_max},
                pool_),
      pooling_({.slot_count = capacity_.slot_count(),
                .embedding_size = capacity_.embedding_size,
                .label_count = capacity_.label_count,
                .labels_of_first = config.is_encoder(),
                .sparse_head = std::move(sparse_head)}),
      proposer_(std::move(proposer)),
      drafter_(proposer_.get(), {.slot_count = capacity_.slot_count(),
                                 .vocab_size = sampled_vocab_,
                                 .drafts_for_logprobs = !model_->draws_rows()}),
      samplers_(static_cast<size_t>(pool_.size())),
      row_sampler_({.vocab_size = config.vocab_size,
                    .sampled_vocab = sampled_vocab_,
                    .jump_tokens_max = options.jump_tokens_max,
                    .draws_rejected = drafter_.wants_rejected()},
                   pool_, samplers_, slots_, grammars_) {
  int64_t sampling = grammars_.bytes();
  for (sampling::Sampler& sampler : samplers_) {
    sampler.reserve(config.vocab_size);
    sampling += sampler.bytes();
  }
  CHECK(sampling == footprint().workspace.sampling, "what sampling keeps is not as planned");
  thread_ = std::thread([this] { work(); });
}

std::string LocalExecutor::speculation_warning() const {
  return proposer_ == nullptr ? "" : proposer_->warning();
}

LocalExecutor::~LocalExecutor() {
  queue_.stop();
  thread_.join();
}

void LocalExecutor::submit(engine::StepPlan plan) {
  queue_.submit(std::move(plan));
}

engine::StepResult LocalExecutor::collect() {
  return queue_.collect();
}

void LocalExecutor::work() {
  pthread_setname_np(pthread_self(), "pelton-exec");
  const base::ThreadPool::PinnedCaller pinned = pool_.adopt_caller();
  while (true) {
    Flight& flight = flights_[0];
    std::optional<engine::StepPlan> plan;
    if (!flight.has_begun) {
      plan = queue_.wait();
      if (!plan) return;
    }
    const ComputeThreads::Turn turn = compute_threads_->take_turn(work_);
    if (plan) begin(*std::move(plan), flight);
    begin_early(flight);
    queue_.deliver(finish(flight));
    grammars_.fill_masks(flight.plan);  // while the engine's thread makes the next plan of it
    flight.has_begun = false;
    std::swap(flights_[0], flights_[1]);
  }
}

// The step behind begins as soon as its plan is there, if it may.
void LocalExecutor::begin_early(const Flight& running) {
  if (!model_->draws_rows() || running.rows.empty()) return;
  std::optional<engine::StepPlan> next =
      queue_.take_early([&] { return model_->is_done(); },
                        [&](const engine::StepPlan& plan) {
                          return may_overlap(plan, running.plan, running.rows, slots_, grammars_);
                        });
  if (!next) return;
  begin(*std::move(next), flights_[1]);
  ++overlapped_;
}

// A table of contents: copies -> slots -> flat arrays -> what may be drawn -> the model.
void LocalExecutor::begin(engine::StepPlan given, Flight& flight) {
  const base::SystemClock clock;
  flight.plan = std::move(given);
  flight.has_begun = true;
  flight.begun_ns = clock.now_ns();
  flight.computes = false;
  flight.rows.clear();
  flight.result = {};
  const engine::StepPlan& plan = flight.plan;
  flight.result.step = plan.step;
  flight.begun = plan.copies.empty() ? Result<void>() : model_->copy_blocks(plan.copies);
  if (!flight.begun.ok() || plan.sequences.empty()) return;
  slots_.apply(plan);
  grammars_.apply(plan);
  pooling_.apply(plan);
  drafter_.apply(plan);
  const int64_t before_ns = clock.now_ns();
  flight.drafts = drafter_.draft(plan);
  grammars_.cut(plan, flight.drafts);
  flight.result.draft_ns = clock.now_ns() - before_ns;
  drafter_.divide_time(flight.result);
  const Batch batch = build_batch(plan, slots_, flight.drafts, capacity_.groups.size());
  flight.rows = row_sampler_.list(plan, batch, flight.drafts, flight.result);
  const bool on_device = model_->draws_rows() && !flight.rows.empty();
  if (on_device) row_sampler_.prepare_for_device(plan, flight.rows, flight.device_rows);
  const auto see = [this](int index, const float* x, int rows) { drafter_.see(index, x, rows); };
  models::HiddenTap tap(see);
  model_->begin(batch.input, on_device ? &flight.device_rows : nullptr,
                drafter_.has_taps() ? &tap : nullptr);
  flight.computes = true;
}

engine::StepResult LocalExecutor::finish(Flight& flight) {
  const Result<void> computed = complete(flight);
  if (computed.ok()) {
    flight.result.compute_ns = base::SystemClock().now_ns() - flight.begun_ns;
    return std::move(flight.result);
  }
  row_sampler_.forget(flight.plan, flight.rows);
  engine::StepResult nothing;  // a device said no: nothing of the step counts
  nothing.step = flight.plan.step;
  nothing.error = computed.error();
  return nothing;
}

// Logits or tokens -> the step's result.
Result<void> LocalExecutor::complete(Flight& flight) {
  TRY(flight.begun);
  if (!flight.computes) return {};
  TRY_ASSIGN(float* logits, model_->finish());
  const engine::StepPlan& plan = flight.plan;
  row_sampler_.sample(plan, flight.rows, model_->draws_rows() ? &flight.device_rows : nullptr,
                      logits, flight.result);
  drafter_.append(flight.result);
  drafter_.observe(plan, flight.drafts);
  if (drafter_.wants_rejected()) drafter_.see_rejected(plan, flight.rows);
  const std::vector<int> first = first_rows(plan, flight.drafts);
  const ScoreContext context{.slots = slots_,
                             .model = *model_,
                             .pool = pool_,
                             .samplers = samplers_,
                             .first_rows = first,
                             .vocab_size = capacity_.vocab_size,
                             .sampled_vocab = sampled_vocab_};
  score_prompts(plan, context, flight.result);  // over the logits that are done with
  return pooling_.pool(plan, first, slots_, *model_, flight.result);
}

}  // namespace pelton::executor
