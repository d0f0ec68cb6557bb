#include "node/loaded_model.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/machine.h"
#include "chat/format_of.h"
#include "checkpoint/describe.h"
#include "cost_model/footprint.h"
#include "engine/step_log.h"
#include "node/kept_measurement.h"
#include "node/model_fingerprint.h"
#include "node/model_template.h"
#include "node/model_tokenizer.h"
#include "node/packed_cache.h"
#include "node/packed_folder.h"

namespace pelton::node {
namespace {

// How long each part of a start took.
class Phases {
 public:
  Phases(const base::Clock& clock, LoadedModel::LoadPhases before)
      : clock_(clock), begin_ns_(clock.now_ns()), phases_(std::move(before)) {
    for (const auto& [name, duration] : phases_) before_ += duration;
  }

  void end(const char* name) {
    const int64_t now = clock_.now_ns();
    phases_.emplace_back(name, seconds(now - last_ns_));
    last_ns_ = now;
  }
  double total() const { return before_ + seconds(last_ns_ - begin_ns_); }
  const LoadedModel::LoadPhases& phases() const { return phases_; }
  std::string text() const {  // "files 0.10, tokenizer 0.85, ..."
    std::string parts;
    for (const auto& [name, duration] : phases_) {
      parts += fmt::format("{}{} {:.2f}", parts.empty() ? "" : ", ", name, duration);
    }
    return parts;
  }

 private:
  static double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

  const base::Clock& clock_;
  const int64_t begin_ns_;
  int64_t last_ns_ = begin_ns_;
  LoadedModel::LoadPhases phases_;
  double before_ = 0;
};

double gibibytes(int64_t bytes) {
  return static_cast<double>(bytes) / (int64_t{1} << 30);
}

// How many times fewer bytes of weights a token reads if attention has 8 bits and the head 4, than
// now; in 12 where they are bf16 and `compacts`.
double gain_of_int8(const checkpoint::Checkpoint& checkpoint, bool compacts) {
  constexpr int64_t kColumns = 32;
  const families::ModelConfig& config = checkpoint.config();
  double now = 0;
  double packed = 0;
  for (const families::ExpectedTensor& tensor : checkpoint.expected()) {
    const auto bytes = static_cast<double>(tensor.bytes());
    const auto in = [&](tensor::DType dtype) {
      return static_cast<double>(tensor.parameters() / kColumns *
                                 tensor::row_bytes(dtype, kColumns));
    };
    const bool is_compact = compacts && checkpoint::can_be_compact(tensor, config, false);
    const double held = is_compact ? static_cast<double>(checkpoint::compact_bytes(tensor)) : bytes;
    if (tensor.kind == families::TensorKind::kExperts) {
      now += bytes * config.experts_per_token / config.expert_count;
      packed += bytes * config.experts_per_token / config.expert_count;
    } else if (tensor.kind == families::TensorKind::kAttention && tensor.shape.size() == 2) {
      now += held;
      packed += std::min(held, in(tensor::DType::kQ8_0));
    } else if (tensor.kind == families::TensorKind::kHead) {
      now += held;
      packed += std::min(held, in(tensor::DType::kQ4_0));
    }
  }
  return packed > 0 ? now / packed : 1;
}

// Other models' context is no reason not to serve an encoder.
void fit_shared_context(const families::ModelConfig& model, LoadedModel::Options& options,
                        base::Log& log) {
  executor::LocalExecutor::Options& executor = options.executor;
  if (!options.context_is_shared || !model.is_encoder() || !executor.context_tokens) return;
  int most = model.context_max;
  if (!executor.batch_from_memory) most = std::min(most, executor.batch_tokens_max);
  if (*executor.context_tokens <= most) return;
  log.info(
      fmt::format("--max-model-len {} is other models': this encoder's longest text has {} "
                  "tokens",
                  *executor.context_tokens, most));
  executor.context_tokens = most;
}

void log_kernel_choice(const executor::KernelChoice& choice, base::Log& log) {
  for (const std::string& problem : choice.problems) log.warning(problem);
  log.info("kernel choice: " + choice.how);
  log.debug("kernel choice: " + choice.configs);
}

}  // namespace

Result<std::unique_ptr<LoadedModel>> LoadedModel::load(const std::string& model,
                                                       const Options& given,
                                                       const base::Clock& clock, base::Log& log) {
  Options options = given;
  if (options.budget != nullptr) options.executor.memory_bytes = options.budget->left();
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(model, options.revision));
  if (options.executor.ranks.several()) {
    // All ranks compute with the same pages of the files.
    options.compact_from.reset();
    if (options.load_mode == checkpoint::LoadMode::kAuto) {
      options.load_mode = checkpoint::LoadMode::kMap;
    }
  }
  TRY_ASSIGN(checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::open(folder));
  // Nothing of an encoder's is kept that could be found again.
  if (checkpoint.config().is_encoder()) options.engine.prefix_cache = false;
  fit_shared_context(checkpoint.config(), options, log);
  std::unique_ptr<LoadedModel> loaded(new LoadedModel(std::move(checkpoint)));
  loaded->weights_place_ = folder;
  Phases phases(clock, options.phases_before);
  // Before anything is packed: beside packed weights there are no texts.
  TRY(loaded->load_tokenizer(options));
  ModelFingerprint fingerprint(loaded->checkpoint_);
  if (!options.make_executor) TRY(loaded->choose_device(options, log));
  if (!options.make_executor && !loaded->device_) TRY(loaded->pack(options, log));
  phases.end("files");
  TRY(loaded->check_draft_tokens(options.executor.speculation.model));
  loaded->unite_stop_tokens();
  log.info("model: " + checkpoint::family_line(loaded->config()));
  if (const std::string warning = checkpoint::left_out_warning(loaded->checkpoint_);
      !warning.empty()) {
    log.warning(warning);
  }
  log.info("chat format: " +
           (loaded->chat_ ? loaded->chat_->choice() : "none: " + loaded->no_chat_.message));
  phases.end("tokenizer");
  if (!options.make_executor && !loaded->device_) TRY(loaded->read_weights(options, log));
  phases.end("weights");
  TRY(loaded->make_executor(options, log));
  loaded->fingerprint_ = fingerprint.of({.tokenizer = loaded->tokenizer_.get(),
                                         .chat_format = loaded->chat_ ? loaded->chat_->name() : "",
                                         .chat_template = loaded->template_text_,
                                         .settings = loaded->numeric_settings()});
  if (!options.step_log.empty()) {
    TRY_ASSIGN(loaded->executor_,
               engine::LoggedExecutor::make(std::move(loaded->executor_), options.step_log, clock));
  }
  loaded->engine_ =
      std::make_unique<engine::Engine>(options.engine, *loaded->executor_, clock, log);
  phases.end("memory");
  const checkpoint::LoadChoice& choice = loaded->load_choice_;
  if (choice.mode == checkpoint::LoadMode::kLock && choice.keep_available) {
    loaded->lock_watch_.emplace(LockWatch::Options{.floor_bytes = choice.floor_bytes},
                                loaded->checkpoint_, loaded->own_pieces(), log);
  }
  const std::string mode = loaded->has_weights_in_memory()
                               ? fmt::format("; load mode {}", loaded->load_choice_.text())
                               : "";
  log.info(fmt::format("{}; loaded in {:.2f} s ({}){}", loaded->weights_text(), phases.total(),
                       phases.text(), mode));
  loaded->load_phases_ = phases.phases();
  return loaded;
}

Result<void> LoadedModel::choose_device(const Options& options, base::Log& log) {
  // Packed weights and named kernels are the processors'.
  const bool names_cpu = options.executor.kernels != "auto" || options.weights.has_value();
  const bool prefers_cpu = options.device == "auto" && names_cpu;
  TRY_ASSIGN(executor::DeviceChoice choice,
             executor::choose_device(prefers_cpu ? "cpu" : options.device));
  log.info(choice.text);
  device_ = std::move(choice.device);
  return {};
}

// Of a model that is computed as its files have it: what it could be asked for.
void LoadedModel::suggest_packing(const Options& options, base::Log& log) const {
  const bool can_be = checkpoint_.weight_layout() != families::WeightLayout::kTiled &&
                      models::can_be_packed(checkpoint_) &&
                      checkpoint_.weight_bytes() >= kPackedFromBytes &&
                      options.executor.kernels != "reference";
  if (!can_be) return;
  std::optional<std::string> cost = kept_measurement(measurements_folder(), checkpoint_);
  const auto record = std::ranges::find(format_records_, "weights-int8", &FormatRecord::format);
  if (record != format_records_.end()) cost = record->text();
  // What it costs comes before what it brings.
  if (!cost) {
    log.info(
        "weights keep the bits that they are shipped in; no other format is recommended, as none "
        "was evaluated with this model (pelton perplexity MODEL --text FILE --against-weights int8 "
        "does that)");
    return;
  }
  log.info(
      fmt::format("weights keep the bits that they are shipped in; with --weights int8 a token "
                  "reads {:.1f} times fewer bytes of them; {}",
                  gain_of_int8(checkpoint_, options.compact_from.has_value()), *cost));
}

// From here on what was packed is the model's weights.
Result<void> LoadedModel::pack(const Options& options, base::Log& log) {
  format_records_ = kept_records(measurements_folder(), checkpoint_);
  if (checkpoint_.weight_layout() == families::WeightLayout::kTiled) return {};
  if (!options.weights) {
    suggest_packing(options, log);
    return {};
  }
  if (config().is_encoder()) {
    return Error{ErrorCode::kUnsupported,
                 "--weights: an encoder is computed as its files have it, and not packed",
                 "weights"};
  }
  // Beside models that compute, which are pinned, it takes what processors are free.
  const bool alone = options.budget == nullptr || options.budget->uses().empty();
  base::ThreadPool pool({.threads = options.executor.threads, .pin = alone});
  const base::ThreadPool::PinnedCaller pinned = pool.adopt_caller();
  return options.packed_cache.empty() ? pack_into_memory(options, pool, log)
                                      : pack_into_cache(options, pool, log);
}

Result<void> LoadedModel::pack_into_cache(const Options& options, base::ThreadPool& pool,
                                          base::Log& log) {
  TRY_ASSIGN(std::optional<std::string> folder,
             find_packed(options.packed_cache, checkpoint_, *options.weights));
  if (!folder) {
    TRY(check_beside_weights(options));
    log.info(fmt::format(
        "packing {:.1f} GiB of weights for the fast kernels, once; later starts find them in {}",
        gibibytes(checkpoint_.weight_bytes()), options.packed_cache));
    const auto made = make_packed(
        options.packed_cache, checkpoint_, *options.weights, pool,
        [&](std::string_view what, int64_t done, int64_t total) {
          return !options.progress || options.progress(what, done, total);
        },
        log);
    if (!made.ok() && made.error().code == ErrorCode::kIo) {
      return Error{ErrorCode::kIo, made.error().message, "weights-cache"};
    }
    TRY_ASSIGN(folder, made);
  }
  TRY_ASSIGN(checkpoint_, checkpoint::Checkpoint::open(*folder));
  weights_place_ = *folder;
  log.info(fmt::format("weights from {}, packed from {}", *folder, checkpoint_.tiles().source));
  return {};
}

Result<void> LoadedModel::pack_into_memory(const Options& options, base::ThreadPool& pool,
                                           base::Log& log) {
  if (options.executor.ranks.several()) {
    return Error{
        ErrorCode::kUnsupported,
        "--tensor-parallel-size: ranks share packed weights as files: give --weights-cache "
        "DIR, or the folder that pelton pack makes",
        "weights-cache"};
  }
  TRY(check_beside_weights(options));
  const int64_t memory = options.executor.memory_bytes.value_or(base::memory_limit_bytes());
  if (checkpoint_.weight_bytes() >= memory) {
    return Error{ErrorCode::kDoesNotFit,
                 fmt::format("--weights: {:.1f} GiB of weights cannot be packed in {:.1f} GiB of "
                             "memory; --weights-cache DIR packs them into files",
                             gibibytes(checkpoint_.weight_bytes()), gibibytes(memory)),
                 "weights-cache"};
  }
  log.info(fmt::format("packing {:.1f} GiB of weights into memory",
                       gibibytes(checkpoint_.weight_bytes())));
  const base::SystemClock clock;
  const int64_t begin_ns = clock.now_ns();
  models::PackedModel made;
  TRY_ASSIGN(checkpoint_, node::pack_into_memory(
                              checkpoint_, {.weights = *options.weights}, pool,
                              [&](std::string_view what, int64_t done, int64_t total) {
                                return !options.progress || options.progress(what, done, total);
                              },
                              made));
  log.info(
      fmt::format("packed: {}; --weights-cache DIR would save {:.1f} s of the next start, and "
                  "keep {:.1f} GiB there",
                  verdict(made), static_cast<double>(clock.now_ns() - begin_ns) * 1e-9,
                  gibibytes(checkpoint_.weight_bytes())));
  log.debug("packed: " + details(made));
  if (!made.excess.empty()) log.warning("packed weights: " + made.excess);
  return {};
}

// What does not fit whatever the weights are packed into is not packed for.
Result<void> LoadedModel::check_beside_weights(const Options& options) const {
  TRY_ASSIGN(const cost_model::MemoryRequest request,
             executor::LocalExecutor::memory_request(options.executor, checkpoint_.config()));
  Result<cost_model::Footprint> footprint = cost_model::footprint(checkpoint_, request);
  if (!footprint.ok()) return {};  // perhaps of the packed ones it can be said
  footprint->weights = {};
  return cost_model::check_fits(*footprint);
}

std::string LoadedModel::weights_text() const {
  const checkpoint::TilesNote& tiles = checkpoint_.tiles();
  if (tiles.activation_bits == 0) {
    return "weights as the files have them: " + checkpoint::weight_types(checkpoint_);
  }
  const bool int8 = tiles.weights == "int8";
  const bool coarse = checkpoint_.has(families::kCoarseHead);
  const bool experts = checkpoint_.config().has_experts();
  return fmt::format("weights in tiles: {} {}, head {}; activations int{}",
                     experts ? "experts MXFP4, attention" : "attention and MLPs",
                     int8 ? "int8" : "as shipped",
                     coarse ? "int4 and as shipped"
                     : int8 ? "int8"
                            : "as shipped",
                     tiles.activation_bits);
}

Result<std::shared_ptr<const tokenizer::Tokenizer>> TokenizerCache::get(const std::string& folder,
                                                                        const Read& read) {
  std::lock_guard lock(mutex_);
  std::weak_ptr<const tokenizer::Tokenizer>& known = known_[folder];
  if (std::shared_ptr<const tokenizer::Tokenizer> used = known.lock()) return used;
  TRY_ASSIGN(std::unique_ptr<tokenizer::Tokenizer> made, read());
  std::shared_ptr<const tokenizer::Tokenizer> shared = std::move(made);
  known = shared;
  return shared;
}

// Ahead of the first token rather than during it. What is beside the weights is known before it is
// allocated: where it does not fit, nothing is read in vain.
Result<cost_model::Footprint> LoadedModel::take_memory(const Options& options) {
  TRY_ASSIGN(cost_model::MemoryRequest request,
             executor::LocalExecutor::memory_request(options.executor, checkpoint_.config()));
  if (!options.weights) request.compact_from = options.compact_from;
  Result<cost_model::Footprint> footprint = cost_model::footprint(checkpoint_, request);
  Result<void> fits;
  if (footprint.ok()) fits = cost_model::check_fits(*footprint);
  if (options.budget == nullptr) {
    TRY(fits);
    return footprint;
  }
  if (!footprint.ok()) return options.budget->beside_others(footprint.error());
  if (!fits.ok()) return options.budget->beside_others(fits.error());
  TRY_ASSIGN(MemoryBudget::Share share, options.budget->take(options.name, footprint->bytes()));
  share_.emplace(std::move(share));
  return footprint;
}

checkpoint::WeightRanges LoadedModel::own_weights() const {
  return part_ ? *part_ : checkpoint::whole_weights(checkpoint_);
}

checkpoint::WeightPieces LoadedModel::own_pieces() const {
  return part_ ? checkpoint::weight_pieces(checkpoint_, *part_)
               : checkpoint::weight_pieces(checkpoint_);
}

Result<void> LoadedModel::read_weights(const Options& options, base::Log& log) {
  const executor::RankOptions& ranks = options.executor.ranks;
  if (ranks.several()) {
    TRY_ASSIGN(part_, executor::leader_weights(checkpoint_, ranks));
  }
  TRY_ASSIGN(const cost_model::Footprint footprint, take_memory(options));
  const checkpoint::WeightPieces own = own_pieces();
  // Ranks of one host have all parts in its memory together.
  const checkpoint::WeightPieces here =
      ranks.meeting ? own : checkpoint::weight_pieces(checkpoint_);
  const checkpoint::LoadFacts facts =
      checkpoint::load_facts(checkpoint::mapped_bytes(here), footprint.beside_weights());
  TRY_ASSIGN(const checkpoint::LoadChoice choice,
             checkpoint::choose_load_mode(options.load_mode, facts));
  TRY_ASSIGN(load_choice_, checkpoint::read_weights(own, choice, [&](int64_t done, int64_t total) {
               return !options.progress || options.progress("loading weights", done, total);
             }));
  // What was mapped beside it on the way.
  if (part_) checkpoint::drop_other_pages(checkpoint_, own);
  if (!load_choice_.ahead) log.warning(load_choice_.reason);
  return footprint.weights.compact > 0 ? hold_compact(options, log) : Result<void>();
}

// What is read of the files here is in memory already.
Result<void> LoadedModel::hold_compact(const Options& options, base::Log& log) {
  const base::SystemClock clock;
  const int64_t begin_ns = clock.now_ns();
  const bool alone = options.budget == nullptr || options.budget->uses().empty();
  base::ThreadPool pool({.threads = options.executor.threads, .pin = alone});
  const base::ThreadPool::PinnedCaller pinned = pool.adopt_caller();
  TRY_ASSIGN(const checkpoint::CompactWeights made,
             checkpoint::compact_weights(checkpoint_, pool, [&](int64_t done, int64_t total) {
               return !options.progress ||
                      options.progress("bf16 weights into 12 bits", done, total);
             }));
  log.info(fmt::format(
      "{:.2f} GiB of bf16 weights are held in 12 bits each, exactly: {:.2f} GiB, made in {:.1f} s "
      "(--weights mapped computes with the files' pages instead)",
      gibibytes(made.file_bytes), gibibytes(made.bytes),
      static_cast<double>(clock.now_ns() - begin_ns) * 1e-9));
  if (made.left > 0) {
    log.info(
        fmt::format("{} tensors stay in 16 bits: their exponents lie too far apart", made.left));
  }
  return {};
}

// A folder without a tokenizer is no error here; a broken one is.
// What is chosen of how it computes, and changes what it computes; which of the machine's
// instructions do it is no choice.
std::string LoadedModel::numeric_settings() const {
  if (local_executor_ == nullptr) return "modelled";
  return fmt::format("{}; KV cache {}", weights_text(),
                     tensor::kv_type_name(local_executor_->footprint().kv.dtype));
}

Result<void> LoadedModel::load_tokenizer(const Options& options) {
  TokenizerCache own;
  TokenizerCache& cache = options.tokenizers == nullptr ? own : *options.tokenizers;
  const std::string& other = options.chat.tokenizer;
  // Whether another one fits depends on the model.
  const std::string name =
      other.empty() ? checkpoint_.folder() : fmt::format("{} for {}", other, checkpoint_.folder());
  TRY_ASSIGN(tokenizer_, cache.get(name, [&] {
    return other.empty() ? read_model_tokenizer(checkpoint_)
                         : read_other_tokenizer(other, config().vocab_size);
  }));
  if (tokenizer_ != nullptr) return load_chat_format(options.chat);
  no_tokenizer_ = Error{ErrorCode::kNotFound,
                        fmt::format("{} has no tokenizer (tokenizer.json, tekken.json or "
                                    "tokenizer.model); only token ids can be used with this "
                                    "model",
                                    checkpoint_.folder())};
  no_chat_ = no_tokenizer_;
  return {};
}

// A draft model whose ids mean other texts would guess, and never be right.
Result<void> LoadedModel::check_draft_tokens(const std::string& draft_model) const {
  const std::string file = draft_model + "/tokenizer.json";
  if (draft_model.empty() || !tokenizer_ || !std::filesystem::exists(file)) return {};
  TRY_ASSIGN(const tokenizer::Tokenizer theirs, tokenizer::Tokenizer::load(file));
  const int tokens = std::max(tokenizer_->vocab_size(), theirs.vocab_size());
  for (TokenId id = 0; id < tokens; ++id) {
    if (tokenizer_->bytes(id) == theirs.bytes(id)) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--speculative-config: the draft model {} has other tokens than the "
                             "model (id {} is one): give one with the same tokenizer",
                             draft_model, id),
                 "speculative-config"};
  }
  return {};
}

// That there is none is no error here; a template that cannot be read is.
Result<void> LoadedModel::load_chat_format(const ChatOptions& chat) {
  TRY_ASSIGN(auto chat_template, read_model_template(checkpoint_, chat.template_file));
  if (chat_template) template_text_ = chat_template->text + chat_template->for_tools;
  Result<std::shared_ptr<const chat::ChatFormat>> format =
      chat::format_of({.tokenizer = *tokenizer_,
                       .chat_template = std::move(chat_template),
                       .stops = config().eos_tokens,
                       .is_template_given = !chat.template_file.empty(),
                       .reasoning_parser = chat.reasoning_parser,
                       .tool_call_parser = chat.tool_call_parser});
  if (format.ok()) {
    chat_ = *format;
  } else if (format.error().code != ErrorCode::kUnsupported) {
    return format.error();
  } else {
    no_chat_ = format.error();
  }
  return {};
}

Result<const tokenizer::Tokenizer*> LoadedModel::tokenizer() const {
  if (tokenizer_ == nullptr) return no_tokenizer_;
  return tokenizer_.get();
}

Result<std::shared_ptr<const chat::ChatFormat>> LoadedModel::chat_format() const {
  if (!chat_) return no_chat_;
  return chat_;
}

std::string LoadedModel::chat_template_name() const {
  if (!chat_) return "";
  constexpr size_t kDigits = 16;
  std::string name(chat_->name());
  if (!template_text_.empty()) {
    name += ", template sha256:" + base::sha256(template_text_).substr(0, kDigits);
  }
  return name;
}

void LoadedModel::unite_stop_tokens() {
  stop_tokens_ = config().eos_tokens;
  if (chat_) stop_tokens_ = chat_->stop_tokens(stop_tokens_);
  std::sort(stop_tokens_.begin(), stop_tokens_.end());
  stop_tokens_.erase(std::unique(stop_tokens_.begin(), stop_tokens_.end()), stop_tokens_.end());
}

Result<void> LoadedModel::make_executor(const Options& options, base::Log& log) {
  if (options.make_executor) {
    TRY_ASSIGN(const tokenizer::Tokenizer* tokenizer, this->tokenizer());
    TRY_ASSIGN(executor_, options.make_executor(*tokenizer));
    return {};
  }
  executor::LocalExecutor::Options local = options.executor;
  local.ranks.model = weights_place_;
  local.ranks.load = load_choice_;
  if (tokenizer_) {
    // Else some text would become a row that the embedding does not have.
    if (tokenizer_->vocab_size() > config().vocab_size) {
      return Error{
          ErrorCode::kBadCheckpoint,
          fmt::format("{}: the tokenizer has {} ids, but the model's vocabulary only {}",
                      checkpoint_.folder(), tokenizer_->vocab_size(), config().vocab_size)};
    }
    local.sampled_vocab = tokenizer_->vocab_size();
  }
  TRY_ASSIGN(auto made, make_local(local, options, log));
  if (const std::string warning = made->speculation_warning(); !warning.empty()) {
    log.warning(warning);
  }
  if (local.speculation.method == speculative::Config::Method::kSuffixShared &&
      !options.engine.prefix_cache) {
    log.warning(
        "--speculative-config: suffix_shared keeps no answer while the prefix cache is off, since "
        "no request may learn of another then: only suffix guesses");
  }
  local_executor_ = made.get();
  executor_ = std::move(made);
  return {};
}

Result<std::unique_ptr<executor::LocalExecutor>> LoadedModel::make_local(
    const executor::LocalExecutor::Options& local, const Options& options, base::Log& log) {
  if (!device_) return executor::LocalExecutor::create(checkpoint_, local);
  executor::LocalExecutor::Options on_device = local;
  on_device.device = device_;
  Result<std::unique_ptr<executor::LocalExecutor>> made =
      executor::LocalExecutor::create(checkpoint_, on_device);
  if (made.ok()) log_kernel_choice(*(*made)->kernel_choice(), log);
  if (made.ok() || options.device != "auto") return made;
  const ErrorCode code = made.error().code;
  if (code != ErrorCode::kUnsupported && code != ErrorCode::kDoesNotFit) return made;
  log.warning("computing on the CPU instead: " + made.error().message);
  device_.reset();
  TRY(read_weights(options, log));
  return executor::LocalExecutor::create(checkpoint_, local);
}

}  // namespace pelton::node
