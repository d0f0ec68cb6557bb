// One model, loaded and running: its files, tokenizer, executor and engine, started and stopped as
// a whole. Owned by the program's entry; the parts may be used from any thread as their headers
// say.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "chat/format.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/compact_weights.h"
#include "checkpoint/residency.h"
#include "checkpoint/weight_ranges.h"
#include "engine/engine.h"
#include "executor/local_executor.h"
#include "models/pack_model.h"
#include "node/kept_measurement.h"
#include "node/lock_watch.h"
#include "node/memory_budget.h"
#include "tokenizer/tokenizer.h"

namespace pelton::node {

// --tokenizer --chat-template --reasoning-parser --tool-call-parser; empty: what the model's files
// say.
struct ChatOptions {
  std::string tokenizer = {};  // a folder, a tokenizer's file or a hub id
  std::string template_file = {};
  std::string reasoning_parser = {};
  std::string tool_call_parser = {};
};

// Tokenizers of folders that several models are loaded from. Any thread.
class TokenizerCache {
 public:
  using Read = std::function<Result<std::unique_ptr<tokenizer::Tokenizer>>()>;
  // The folder's, read by the first who asks, while anybody uses it; null: it has none.
  Result<std::shared_ptr<const tokenizer::Tokenizer>> get(const std::string& folder,
                                                          const Read& read);

 private:
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<const tokenizer::Tokenizer>> known_;  // guarded by mutex_
};

class LoadedModel {
 public:
  struct Options {
    executor::LocalExecutor::Options executor;  // but for `device` in it
    // executor/device.h: auto, cpu or cuda. auto is the CPU where `executor` names its kernels, or
    // where the device cannot take the model.
    std::string device = "cpu";
    // Another executor than this machine's: `serve --executor modelled:FILE`. Gets the folder's
    // tokenizer, which outlives what it makes.
    std::function<Result<std::unique_ptr<engine::Executor>>(const tokenizer::Tokenizer&)>
        make_executor;
    engine::Engine::Options engine;
    std::string step_log;  // a file for engine/step_log.h; empty: none
    // Packs the weights: into memory, or into this folder, where later loads find them
    // (node/packed_cache.h). None: the bits of the model's files, none changed.
    std::optional<models::WeightChoice> weights;
    std::string packed_cache;  // empty: memory
    // Of weights that are not packed: from so many bytes on bf16 matrices are held in 12 bits each,
    // exactly (checkpoint/compact_weights.h); empty: all are computed with where they are mapped.
    std::optional<int64_t> compact_from = checkpoint::kCompactFromBytes;
    checkpoint::LoadMode load_mode = checkpoint::LoadMode::kAuto;
    ChatOptions chat = {};
    TokenizerCache* tokenizers = nullptr;  // outlives the load; null: the model reads its own
    // Where several models share this machine's memory: what this one may take is what is left
    // there, under this name. Outlives it; null: it has the machine's to itself. What lies in a
    // device's memory is not counted.
    MemoryBudget* budget = nullptr;
    std::string name = {};
    std::string revision = {};  // of a hub id; empty: main
    // What the load took before it came to be here, in seconds, by its parts (weights fetched).
    std::vector<std::pair<std::string, double>> phases_before = {};
    // Called while it takes long: what is being done, bytes or steps so far and in all; false
    // stops. May be empty.
    std::function<bool(std::string_view what, int64_t done, int64_t total)> progress;
    // executor.context_tokens is what several models were given: an encoder whose longest text is
    // shorter takes that.
    bool context_is_shared = false;
  };

  // `model`: a folder or a hub id (checkpoint::resolve_model). `clock` and `log` outlive the model.
  static Result<std::unique_ptr<LoadedModel>> load(const std::string& model, const Options& options,
                                                   const base::Clock& clock, base::Log& log);

  const checkpoint::Checkpoint& checkpoint() const { return checkpoint_; }
  const families::ModelConfig& config() const { return checkpoint_.config(); }
  engine::Engine& engine() { return *engine_; }
  // Whether this process computes with the checkpoint's mapping; a device has its own copy.
  bool has_weights_in_memory() const { return local_executor_ != nullptr && !device_; }
  // What of the mapping this process computes with: all, or of several ranks the leader's part.
  checkpoint::WeightRanges own_weights() const;

  // What the start took, in seconds, in the order of its parts: files, tokenizer, weights, memory.
  using LoadPhases = std::vector<std::pair<std::string, double>>;
  const LoadPhases& load_phases() const { return load_phases_; }

  // How weights came into memory at the start; kMap where a device has its own copy or nothing
  // computes.
  const checkpoint::LoadChoice& load_choice() const { return load_choice_; }
  // Whether a lock that was taken has been given up since, for now (LockWatch). Any thread.
  bool lock_given_up() const { return lock_watch_ && !lock_watch_->locked(); }

  // What the weights are, in a few words for people: "int8 attention and head, MXFP4 experts".
  std::string weights_text() const;

  // What its answers depend on besides their requests (node/model_fingerprint.h).
  const std::string& fingerprint() const { return fingerprint_; }
  // "NAME, template sha256:0123456789abcdef": what writes its prompts; empty: it has no chat
  // format.
  std::string chat_template_name() const;
  // What other formats were found to cost these files (node/kept_measurement.h).
  const std::vector<FormatRecord>& format_records() const { return format_records_; }

  // Null when Options::make_executor made another one.
  const executor::LocalExecutor* local_executor() const { return local_executor_; }

  // The tokenizer in the model's folder, and the chat format of its vocabulary or its template. An
  // error if there is none: such a model can still be run on token ids, or on text.
  Result<const tokenizer::Tokenizer*> tokenizer() const;
  // The same, or one without tokens.
  const tokenizer::Tokenizer& any_tokenizer() const { return tokenizer_ ? *tokenizer_ : no_text_; }
  Result<std::shared_ptr<const chat::ChatFormat>> chat_format() const;

  // Sampling ends after one of these: the configuration's, united with the chat format's.
  const std::vector<TokenId>& stop_tokens() const { return stop_tokens_; }

 private:
  explicit LoadedModel(checkpoint::Checkpoint checkpoint) : checkpoint_(std::move(checkpoint)) {}

  Result<void> check_beside_weights(const Options& options) const;
  Result<void> pack(const Options& options, base::Log& log);
  Result<void> pack_into_cache(const Options& options, base::ThreadPool& pool, base::Log& log);
  Result<void> pack_into_memory(const Options& options, base::ThreadPool& pool, base::Log& log);
  void suggest_packing(const Options& options, base::Log& log) const;
  Result<void> load_tokenizer(const Options& options);
  Result<void> load_chat_format(const ChatOptions& chat);
  Result<void> check_draft_tokens(const std::string& draft_model) const;
  void unite_stop_tokens();
  std::string numeric_settings() const;
  Result<cost_model::Footprint> take_memory(const Options& options);
  checkpoint::WeightPieces own_pieces() const;
  Result<void> read_weights(const Options& options, base::Log& log);
  Result<void> hold_compact(const Options& options, base::Log& log);
  Result<void> choose_device(const Options& options, base::Log& log);
  Result<void> make_executor(const Options& options, base::Log& log);
  Result<std::unique_ptr<executor::LocalExecutor>> make_local(
      const executor::LocalExecutor::Options& local, const Options& options, base::Log& log);

  std::optional<MemoryBudget::Share> share_;  // goes back when all else is gone
  checkpoint::Checkpoint checkpoint_;
  std::string weights_place_;                              // where its weights were opened
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;  // null: there is none
  Error no_tokenizer_;                                     // why, where there is none
  const tokenizer::Tokenizer no_text_ = tokenizer::Tokenizer::without_tokens();
  std::shared_ptr<const chat::ChatFormat> chat_;
  Error no_chat_;              // likewise
  std::string template_text_;  // that its chat format was made of; empty: none was
  std::string fingerprint_;
  std::vector<FormatRecord> format_records_;
  std::optional<executor::Device> device_;
  checkpoint::LoadChoice load_choice_;
  std::optional<checkpoint::WeightRanges> part_;  // of its weights; empty: one process has all
  LoadPhases load_phases_;
  std::vector<TokenId> stop_tokens_;
  std::unique_ptr<engine::Executor> executor_;
  const executor::LocalExecutor* local_executor_ = nullptr;
  std::unique_ptr<engine::Engine> engine_;  // after the executor it drives
  std::optional<LockWatch> lock_watch_;     // last: it ends before the checkpoint goes
};

}  // namespace pelton::node
