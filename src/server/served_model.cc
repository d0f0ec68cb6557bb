#include "server/served_model.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/random.h"
#include "server/reply.h"
#include "server/watchdog.h"

namespace pelton::server {
namespace {

struct Use {
  Use(std::shared_ptr<const ServedModel> used, const base::Clock& the_clock)
      : model(std::move(used)), clock(the_clock) {
    ++model->state->uses;
  }
  ~Use() {
    ModelState& state = *model->state;
    state.idle_since_ns = clock.now_ns();
    if (state.uses.fetch_sub(1) == 1 && state.on_idle) state.on_idle();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  const std::shared_ptr<const ServedModel> model;
  const base::Clock& clock;
};

// What to do instead of sending text.
std::string_view without_text(TextUse use) {
  switch (use) {
    case TextUse::kPrompt:
      return "send a prompt of token ids to /v1/completions, with \"return_token_ids\" for the "
             "answer's";
    case TextUse::kEmbeddedInput:
      return "send it as token ids";
    case TextUse::kEmbeddedText:
      return "this request takes text only; /v1/embeddings takes token ids";
    case TextUse::kTokenization:
      return "there is nothing to tokenize with; /v1/completions and /v1/embeddings take token ids";
    case TextUse::kOption:
      return "leave it out";
  }
  return {};
}

}  // namespace

std::shared_ptr<const ServedModel> with_adapter(std::shared_ptr<const ServedModel> model,
                                                std::shared_ptr<const AdapterHold> adapter) {
  struct Both {
    std::shared_ptr<const ServedModel> base;
    ServedModel model;
  };
  const auto both = std::make_shared<Both>(Both{.base = model, .model = *model});
  ServedModel& made = both->model;
  made.id = adapter->name();
  made.aliases.clear();
  made.adapters = nullptr;
  // What it has sampled is its own, and that of all names of the same adapter.
  made.serial = base::random_bits(model->serial, static_cast<uint64_t>(adapter->identity()));
  made.adapter = std::move(adapter);
  return {both, &both->model};
}

std::shared_ptr<const ServedModel> in_use(std::shared_ptr<const ServedModel> model,
                                          const base::Clock& clock) {
  if (model->state == nullptr) return model;  // in tests of parts
  const auto use = std::make_shared<Use>(std::move(model), clock);
  return {use, use->model.get()};
}

int64_t ServedModel::context_limit() const {
  const engine::ExecutorCapacity& capacity = engine.capacity();
  return std::min(
      {int64_t{context_max}, int64_t{capacity.context_tokens_max}, capacity.sequence_tokens_max()});
}

api::RequestLimits ServedModel::request_limits() const {
  return {.vocab_size = vocab_size,
          .unknown_fields = unknown_fields,
          .top_logprobs_max = top_logprobs_max};
}

bool ServedModel::answers_to(std::string_view name) const {
  // A client that names no model means the one there is.
  return name.empty() || name == id ||
         std::find(aliases.begin(), aliases.end(), name) != aliases.end();
}

std::string ServedModel::shown_name(const std::string& asked) const {
  return !asked.empty() && answers_to(asked) ? asked : id;
}

bool ServedModel::is_stuck() const {
  return watchdog != nullptr && watchdog->stuck();
}

std::optional<api::ApiError> ServedModel::unfit() const {
  if (is_stuck()) {
    return api::ApiError{
        .status = 503,
        .message = fmt::format("A step of '{}' has been running for longer than the {} seconds "
                               "that the watchdog allows",
                               id, watchdog->limit_ns() / 1'000'000'000),
        .type = "service_unavailable",
        .param = {},
        .code = "engine_stuck",
        .retry_after_s = 10};
  }
  if (state != nullptr && state->model_health == ModelHealth::kDamaged) return damaged_weights(id);
  return std::nullopt;
}

std::vector<TokenId> ServedModel::all_stop_tokens() const {
  return chat ? chat->stop_tokens(stop_tokens) : stop_tokens;
}

std::optional<Error> ServedModel::no_tokens() const {
  if (transcriber == nullptr) return std::nullopt;
  return Error{ErrorCode::kUnsupported,
               fmt::format("'{}' turns speech into text and answers nothing else: send files to "
                           "/v1/audio/transcriptions or /v1/audio/translations",
                           id),
               "model"};
}

std::optional<Error> ServedModel::no_transcription() const {
  if (transcriber != nullptr) return std::nullopt;
  return Error{ErrorCode::kUnsupported,
               fmt::format("'{}' reads text and hears nothing: files with speech are for a Whisper "
                           "model",
                           id),
               "model"};
}

std::optional<Error> ServedModel::no_chat() const {
  if (chat) return std::nullopt;
  return Error{ErrorCode::kUnsupported,
               fmt::format("'{}' takes no conversations: its files have {}; send {} to "
                           "/v1/completions",
                           id, has_text ? "no chat format known here" : "no tokenizer",
                           has_text ? "text or token ids" : "a prompt of token ids"),
               "model"};
}

std::optional<Error> ServedModel::no_text(std::string_view field, TextUse use) const {
  if (has_text) return std::nullopt;
  return Error{ErrorCode::kUnsupported,
               fmt::format("'{}' cannot be used, as '{}' has no tokenizer: {}", field, id,
                           without_text(use)),
               std::string(field)};
}

}  // namespace pelton::server
