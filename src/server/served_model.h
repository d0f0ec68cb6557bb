// One loaded model as the server sees it. Filled by whoever loads it and owns the parts, which live
// while anybody holds the ServedModel; immutable while it is served, but for its ModelState.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "access/refusal_counts.h"
#include "api/error.h"
#include "api/generation_fields.h"
#include "api/model_list.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/token_id.h"
#include "chat/format.h"
#include "engine/engine.h"
#include "server/adapter_registry.h"
#include "server/generation_meter.h"
#include "server/grammar_store.h"
#include "server/token_sets.h"
#include "server/vector_use.h"
#include "tokenizer/tokenizer.h"

namespace pelton::speech {
class Transcriber;
}

namespace pelton::server {

struct SpeechUse;
class Watchdog;

// What a request gets that says nothing itself: generation_config's values or OpenAI's.
struct SamplingDefaults {
  double temperature = 1.0;
  double top_p = 1.0;
  int top_k = 0;
  double min_p = 0.0;
  double repetition_penalty = 1.0;
};

// What one of several processes that compute a model has exchanged with the others so far, and what
// it holds.
struct RankFigures {
  int rank = 0;
  int64_t exchanges = 0;
  int64_t received_bytes = 0;
  double waiting_seconds = 0;
  double copying_seconds = 0;
  int64_t expert_rows = 0;   // that its experts gave, where each is one rank's
  int64_t weight_bytes = 0;  // that it computes with
  int64_t cache_bytes = 0;   // of its heads' keys and values, swap space included
};

// Whether what a model computes can be believed, as whoever looks at its numbers and weights sees
// it.
enum class ModelHealth {
  kSound,
  kDoubted,  // not ready; what still comes is answered
  kDamaged,  // neither well nor ready; nothing more is generated
};

// What is kept of a model while it is served. Any thread.
struct ModelState {
  explicit ModelState(const base::Clock& clock) : meter(clock) {}

  GrammarStore grammars{GrammarStore::Options{}};  // which are of its vocabulary
  TokenSets token_sets;                            // likewise
  GenerationMeter meter;
  std::atomic<ModelHealth> model_health = ModelHealth::kSound;
  // Requests for it that were refused: the catalogue's, also while it is asleep. Never null.
  std::shared_ptr<access::RefusalCounts> refusals = std::make_shared<access::RefusalCounts>();

  // Requests that it answers (in_use()), since when there is none, and how long after the last one
  // it stays in memory; kStays: as long as nobody says otherwise.
  static constexpr int64_t kStays = INT64_MAX;
  std::atomic<int64_t> uses = 0;
  std::atomic<int64_t> idle_since_ns = 0;
  std::atomic<int64_t> keep_alive_ns = kStays;
  // The last of them is over; on its thread. Set before it is served, may be empty.
  std::function<void()> on_idle;
};

// What a field's text is for, and so what to do where there can be none.
enum class TextUse {
  kPrompt,         // to be continued: token ids can stand in its place
  kEmbeddedInput,  // likewise, to be embedded
  kEmbeddedText,   // of a request that has no form with token ids
  kTokenization,   // text to tokens or back
  kOption,         // what the request can do without
};

struct ServedModel {
  std::string id;                    // as /v1/models lists it
  std::vector<std::string> aliases;  // other names it answers to
  int64_t created = 0;               // seconds since 1970
  int context_max = 0;               // prompt and answer, in tokens
  int vocab_size = 0;                // ids below it may be asked for; at most the logits' width
  const tokenizer::Tokenizer& tokenizer;
  bool has_text = true;  // false: the tokenizer is one without tokens
  // Null: it has none, and conversations are refused.
  std::shared_ptr<const chat::ChatFormat> chat;
  std::vector<TokenId> stop_tokens;  // of generation_config; the chat format's own are added
  engine::Engine& engine;
  SamplingDefaults sampling;
  // What its makers say of it, also while it sleeps; null: nothing.
  std::shared_ptr<const api::ModelDescription> description = {};

  std::string reasoning_field = "reasoning_content";   // or "reasoning"; never both
  std::optional<std::string> current_date;             // fixed; otherwise the clock's local date
  request::Pooling pooling = request::Pooling::kLast;  // of embeddings, unless asked otherwise
  VectorUse vectors = {};
  std::shared_ptr<SpeechUse> speech = {};  // null: its tokens are no sound
  // What computes it, for /server_info: "kernels": "avx512", "weights": "mxfp4".
  // Asked each time, on any thread.
  std::function<std::vector<std::pair<std::string, std::string>>()> runtime;
  // Of each of its ranks; none: one process computes. Null, or asked each time, on any thread.
  std::function<std::vector<RankFigures>()> ranks = {};
  // The most that is allowed, for /server_info: "body_bytes_max": 33554432.
  std::vector<std::pair<std::string, int64_t>> limits;
  // What its load took, part by part, in seconds.
  std::vector<std::pair<std::string, double>> load_phases = {};
  // Whether token-id prompts of /v1/completions may hold control tokens.
  bool control_tokens_in_prompts = false;
  // Of a body's field that nobody documents, and the most alternatives reported for a token.
  api::UnknownFields unknown_fields = api::UnknownFields::kWarn;
  int top_logprobs_max = api::kTopLogprobsMax;
  const Watchdog* watchdog = nullptr;  // of its engine; null: nobody watches
  std::string fingerprint = {};        // node/model_fingerprint.h
  uint64_t serial = 0;  // the catalogue's: another one each time that a model is loaded
  std::shared_ptr<ModelState> state;  // made by whoever fills this in
  // LoRA adapters that requests may name instead of it; null: none.
  std::shared_ptr<AdapterRegistry> adapters = {};
  // Set: this is what answers requests for one of them, and has its name and no other.
  std::shared_ptr<const AdapterHold> adapter = {};
  // Set: it turns speech into text and does nothing else; its engine is idle and refuses all.
  speech::Transcriber* transcriber = nullptr;
  int64_t audio_bytes_max = 0;  // of a file

  // The longest prompt and answer together that the model and its engine's cache can hold.
  int64_t context_limit() const;
  // What a body's parser must know of the model.
  api::RequestLimits request_limits() const;
  bool answers_to(std::string_view name) const;
  // What an answer calls it: as it was asked for, where that is one of its names.
  std::string shown_name(const std::string& asked) const;
  // Why it can answer nobody just now; nothing if it can.
  std::optional<api::ApiError> unfit() const;
  bool is_stuck() const;  // a step does not end, as its watchdog sees it
  // Why there are no conversations, or no text in this field; nothing if there are.
  std::optional<Error> no_chat() const;
  // Why it makes no tokens and no vectors, or no text of speech; nothing if it does.
  std::optional<Error> no_tokens() const;
  std::optional<Error> no_transcription() const;
  std::optional<Error> no_text(std::string_view field, TextUse use) const;
  // The chat format's stop tokens and generation_config's, each once.
  std::vector<TokenId> all_stop_tokens() const;
};

// The same model under an adapter; holds both.
std::shared_ptr<const ServedModel> with_adapter(std::shared_ptr<const ServedModel> model,
                                                std::shared_ptr<const AdapterHold> adapter);

// The same model, as it is held by a request that it answers: counted in its state.
std::shared_ptr<const ServedModel> in_use(std::shared_ptr<const ServedModel> model,
                                          const base::Clock& clock);

}  // namespace pelton::server
