#include "c_api/model.h"

#include <fmt/format.h>

#include "c_api/sized_struct.h"
#include "c_api/status.h"
#include "checkpoint/load_choice.h"
#include "models/pack_model.h"
#include "tensor/kv_block.h"

namespace pelton::c_api {
namespace {

// Of `serve`, but for speculation, adapters and tiers.
pelton_load_options default_options() {
  const executor::LocalExecutor::Options executor;
  return {.size = sizeof(pelton_load_options),
          .weights = nullptr,
          .weights_cache = nullptr,
          .load_mode = nullptr,
          .kv_cache_dtype = nullptr,
          .device = nullptr,
          .chat_template = nullptr,
          .threads = 0,
          .context_tokens = 0,
          .sequences = executor.sequences_max,
          .batch_tokens = executor.batch_tokens_max,
          .kv_cache_bytes = 0,
          .log_level = PELTON_LOG_WARNING,
          .progress = nullptr,
          .progress_data = nullptr};
}

Result<void> check_range(std::string_view name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("'{}' is from {} to {}, not {}", name, least, most, value),
               std::string(name)};
}

Result<void> check_numbers(const pelton_load_options& options) {
  TRY(check_range("threads", options.threads, 0, 1024));
  TRY(check_range("context_tokens", options.context_tokens, 0, 1 << 30));
  TRY(check_range("sequences", options.sequences, 1, 4096));
  TRY(check_range("batch_tokens", options.batch_tokens, 1, 1 << 20));
  TRY(check_range("kv_cache_bytes", options.kv_cache_bytes, 0, INT64_MAX));
  return check_range("log_level", options.log_level, PELTON_LOG_DEBUG, PELTON_LOG_NONE);
}

Result<void> read_weights(const pelton_load_options& given, node::LoadedModel::Options& options) {
  const std::string_view weights = given.weights == nullptr ? "shipped" : given.weights;
  if (weights == "mapped") {
    options.compact_from.reset();
  } else if (weights != "shipped") {
    const Result<models::WeightChoice> choice = models::parse_weight_choice(weights);
    if (!choice.ok()) {
      return Error{choice.error().code,
                   fmt::format("weights are 'shipped', 'mapped', 'auto' or 'int8', not '{}'",
                               weights.substr(0, 64)),
                   "weights"};
    }
    options.weights = *choice;
    if (given.weights_cache != nullptr) options.packed_cache = given.weights_cache;
  }
  return {};
}

Result<node::LoadedModel::Options> model_options(const pelton_load_options& given) {
  TRY(check_numbers(given));
  node::LoadedModel::Options options;
  TRY(read_weights(given, options));
  if (given.load_mode != nullptr) {
    TRY_ASSIGN(options.load_mode, checkpoint::parse_load_mode(given.load_mode));
  }
  if (given.kv_cache_dtype != nullptr) {
    TRY_ASSIGN(options.executor.kv_dtype, tensor::parse_kv_type(given.kv_cache_dtype));
  }
  if (given.device != nullptr) options.device = given.device;
  if (given.chat_template != nullptr) options.chat.template_file = given.chat_template;
  options.executor.threads = given.threads;
  options.executor.sequences_max = given.sequences;
  options.executor.batch_tokens_max = given.batch_tokens;
  if (given.context_tokens > 0) options.executor.context_tokens = given.context_tokens;
  if (given.kv_cache_bytes > 0) options.executor.kv_bytes = given.kv_cache_bytes;
  if (given.progress != nullptr) {
    options.progress = [call = given.progress, data = given.progress_data](
                           std::string_view what, int64_t done, int64_t total) {
      return call(data, std::string(what).c_str(), done, total) == 0;
    };
  }
  return options;
}

}  // namespace

std::shared_ptr<const grammar::TokenTrie> Model::trie() {
  const std::lock_guard lock(trie_making_);
  if (!trie_) trie_ = grammar::TokenTrie::of(text());
  return trie_;
}

}  // namespace pelton::c_api

using namespace pelton::c_api;  // NOLINT: of the functions below, which stand in no namespace

void pelton_load_options_init(pelton_load_options* options, size_t size) {
  init_struct(default_options(), options, size);
}

pelton_status pelton_load(const char* model, const pelton_load_options* options,
                          pelton_model** loaded) {
  return guarded([&]() -> pelton::Result<pelton_status> {
    TRY(check_given(model, "model"));
    TRY(check_given(loaded, "loaded"));
    *loaded = nullptr;
    pelton_load_options given = default_options();
    if (options != nullptr) {
      TRY_ASSIGN(given, read_struct(given, options, "load_options"));
    }
    TRY_ASSIGN(const pelton::node::LoadedModel::Options made, model_options(given));
    auto shared = std::make_shared<Model>(static_cast<pelton::base::LogLevel>(given.log_level));
    TRY_ASSIGN(shared->loaded,
               pelton::node::LoadedModel::load(model, made, shared->clock, shared->log));
    shared->defaults = default_request(*shared->loaded);
    *loaded = new pelton_model{std::move(shared)};
    return PELTON_OK;
  });
}

void pelton_free(pelton_model* model) {
  delete model;
}

int32_t pelton_context_tokens(const pelton_model* model) {
  return model == nullptr ? 0 : model->shared->loaded->engine().capacity().context_tokens_max;
}

int32_t pelton_vocabulary_size(const pelton_model* model) {
  return model == nullptr ? 0 : model->shared->loaded->config().vocab_size;
}

int32_t pelton_embedding_size(const pelton_model* model) {
  return model == nullptr ? 0 : model->shared->loaded->engine().capacity().embedding_size;
}

int pelton_has_chat_format(const pelton_model* model) {
  return model != nullptr && model->shared->loaded->chat_format().ok() ? 1 : 0;
}
