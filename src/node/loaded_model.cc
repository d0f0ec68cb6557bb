#include "node/loaded_model.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/machine.h"
#include "checkpoint/residency.h"
#include "node/model_tokenizer.h"

namespace pelton::node {

Result<std::unique_ptr<LoadedModel>> LoadedModel::load(const std::string& model,
                                                       const Options& options,
                                                       const base::Clock& clock, base::Log& log) {
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(model));
  TRY_ASSIGN(checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::open(folder));
  std::unique_ptr<LoadedModel> loaded(new LoadedModel(std::move(checkpoint)));
  TRY(loaded->load_tokenizer());
  loaded->unite_stop_tokens();
  if (!options.make_executor) TRY(loaded->read_weights(options, clock, log));
  TRY(loaded->make_executor(options));
  loaded->engine_ =
      std::make_unique<engine::Engine>(options.engine, *loaded->executor_, clock, log);
  return loaded;
}

// Ahead of the first token rather than during it, unless they would push each other out of memory.
Result<void> LoadedModel::read_weights(const Options& options, const base::Clock& clock,
                                       base::Log& log) const {
  const int64_t memory = base::memory_limit_bytes();
  if (checkpoint_.weight_bytes() > memory / 10 * 9) {
    log.warning(fmt::format(
        "{} bytes of weights in {} bytes of memory: they are read when they are needed, "
        "again and again",
        checkpoint_.weight_bytes(), memory));
    return {};
  }
  const auto progress = [&](int64_t done, int64_t total) {
    return !options.weights_read || options.weights_read(done, total);
  };
  const int64_t start_ns = clock.now_ns();
  TRY(checkpoint::read_weights(checkpoint_, progress));
  const double seconds = static_cast<double>(clock.now_ns() - start_ns) * 1e-9;
  log.info(fmt::format("{:.1f} MB of weights in memory after {:.2f} s",
                       static_cast<double>(checkpoint_.weight_bytes()) * 1e-6, seconds));
  return {};
}

// A folder without a tokenizer is no error here; a broken one is.
Result<void> LoadedModel::load_tokenizer() {
  TRY_ASSIGN(std::unique_ptr<tokenizer::Tokenizer> found, read_model_tokenizer(checkpoint_));
  if (found != nullptr) {
    tokenizer_ = std::move(*found);
    Result<chat::HarmonyTokens> harmony = chat::HarmonyTokens::find(*tokenizer_);
    if (harmony.ok()) {
      harmony_ = *harmony;
    } else {
      no_tokenizer_ = harmony.error();
    }
    return {};
  }
  no_tokenizer_ =
      Error{ErrorCode::kNotFound,
            fmt::format("{} has no tokenizer.json; only token ids can be used with this "
                        "model",
                        checkpoint_.folder())};
  return {};
}

Result<const tokenizer::Tokenizer*> LoadedModel::tokenizer() const {
  if (!tokenizer_) return no_tokenizer_;
  return &*tokenizer_;
}

Result<chat::HarmonyTokens> LoadedModel::harmony() const {
  if (!harmony_) return no_tokenizer_;
  return *harmony_;
}

void LoadedModel::unite_stop_tokens() {
  stop_tokens_ = config().eos_tokens;
  if (harmony_) {
    for (const TokenId token : harmony_->stop_tokens()) stop_tokens_.push_back(token);
  }
  std::sort(stop_tokens_.begin(), stop_tokens_.end());
  stop_tokens_.erase(std::unique(stop_tokens_.begin(), stop_tokens_.end()), stop_tokens_.end());
}

Result<void> LoadedModel::make_executor(const Options& options) {
  if (options.make_executor) {
    TRY_ASSIGN(const tokenizer::Tokenizer* tokenizer, this->tokenizer());
    TRY_ASSIGN(executor_, options.make_executor(*tokenizer));
    return {};
  }
  executor::LocalExecutor::Options local = options.executor;
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
  TRY_ASSIGN(auto made, executor::LocalExecutor::create(checkpoint_, local));
  local_executor_ = made.get();
  executor_ = std::move(made);
  return {};
}

}  // namespace pelton::node
