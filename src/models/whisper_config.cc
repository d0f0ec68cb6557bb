#include "models/whisper_config.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "base/file.h"
#include "families/config_fields.h"

namespace pelton::models {
namespace {

using families::ConfigFields;

constexpr size_t kFileBytesMax = size_t{4} << 20;
constexpr size_t kLanguagesMax = 256;
constexpr size_t kSuppressedMax = 4096;
constexpr int kPositionsMax = 1 << 14;
constexpr size_t kAlignmentHeadsMax = 64;

Result<WhisperConfig::Stack> read_stack(const ConfigFields& fields, const std::string& side) {
  WhisperConfig::Stack stack;
  TRY_ASSIGN(stack.layers, fields.integer(side + "_layers", {1, families::kLayersMax}));
  TRY_ASSIGN(stack.heads, fields.integer(side + "_attention_heads", {1, families::kHeadsMax}));
  TRY_ASSIGN(stack.inner, fields.integer(side + "_ffn_dim", {1, families::kIntermediateMax}));
  return stack;
}

Result<TokenId> read_token(const ConfigFields& fields, const char* key, int vocab) {
  TRY_ASSIGN(const int token, fields.integer(key, {0, vocab - 1}));
  return static_cast<TokenId>(token);
}

Result<void> read_tokens(const ConfigFields& fields, const char* key, int vocab,
                         std::vector<TokenId>& to) {
  const Json* list = fields.find(key);
  if (list == nullptr) return {};
  if (!list->is_array() || list->as_array().size() > kSuppressedMax) {
    return fields.bad(key, fmt::format("must be a list of at most {} tokens", kSuppressedMax));
  }
  for (const Json& item : list->as_array()) {
    if (!item.is_integer() || item.as_integer() < -1 || item.as_integer() >= vocab) {
      return fields.bad(
          key, fmt::format("holds {}, which is no token of {}", families::shown(item), vocab));
    }
    if (item.as_integer() >= 0) to.push_back(static_cast<TokenId>(item.as_integer()));
  }
  return {};
}

// [[layer, head], ...]
Result<void> read_alignment_heads(const ConfigFields& fields, WhisperConfig& config) {
  const Json* list = fields.find("alignment_heads");
  if (list == nullptr || list->is_null()) return {};
  const auto inside = [](const Json& number, int end) {
    return number.is_integer() && number.as_integer() >= 0 && number.as_integer() < end;
  };
  const bool is_list = list->is_array() && list->as_array().size() <= kAlignmentHeadsMax;
  if (!is_list) {
    return fields.bad("alignment_heads",
                      fmt::format("must be a list of at most {}", kAlignmentHeadsMax));
  }
  for (const Json& pair : list->as_array()) {
    const bool fits = pair.is_array() && pair.as_array().size() == 2 &&
                      inside(pair.as_array()[0], config.decoder.layers) &&
                      inside(pair.as_array()[1], config.decoder.heads);
    if (!fits) {
      return fields.bad(
          "alignment_heads",
          fmt::format("holds {}, which is no [layer, head] of {} and {}", families::shown(pair),
                      config.decoder.layers, config.decoder.heads));
    }
    config.alignment_heads.push_back({.layer = static_cast<int>(pair.as_array()[0].as_integer()),
                                      .head = static_cast<int>(pair.as_array()[1].as_integer())});
  }
  return {};
}

// {"<|en|>": 50259, ...}
Result<void> read_languages(const ConfigFields& fields, WhisperConfig& config) {
  const Json* table = fields.find("lang_to_id");
  if (table == nullptr) return {};
  if (!table->is_object() || table->as_object().size() > kLanguagesMax) {
    return fields.bad("lang_to_id", fmt::format("must be an object of at most {}", kLanguagesMax));
  }
  for (const Json::Member& member : table->as_object()) {
    std::string_view name = member.key;
    if (name.starts_with("<|") && name.ends_with("|>") && name.size() > 4) {
      name = name.substr(2, name.size() - 4);
    }
    if (!member.value.is_integer() || member.value.as_integer() < 0 ||
        member.value.as_integer() >= config.vocab_size) {
      return fields.bad("lang_to_id",
                        fmt::format("has no token for {}", families::shown(Json(member.key))));
    }
    config.languages.emplace_back(name, static_cast<TokenId>(member.value.as_integer()));
  }
  std::ranges::sort(config.languages, {}, &std::pair<std::string, TokenId>::second);
  return {};
}

Result<void> read_tasks(const ConfigFields& fields, WhisperConfig& config) {
  const Json* tasks = fields.find("task_to_id");
  if (tasks == nullptr || !tasks->is_object()) {
    return fields.bad("task_to_id", "is missing, but the model is multilingual");
  }
  const ConfigFields inner = fields.inner(*tasks, "task_to_id");
  TRY_ASSIGN(config.transcribe, read_token(inner, "transcribe", config.vocab_size));
  TRY_ASSIGN(config.translate, read_token(inner, "translate", config.vocab_size));
  return {};
}

Result<void> read_generation(const ConfigFields& fields, WhisperConfig& config) {
  const int vocab = config.vocab_size;
  TRY_ASSIGN(config.end_of_text, read_token(fields, "eos_token_id", vocab));
  TRY_ASSIGN(config.start, read_token(fields, "decoder_start_token_id", vocab));
  TRY_ASSIGN(config.no_timestamps, read_token(fields, "no_timestamps_token_id", vocab));
  config.timestamp_begin = config.no_timestamps + 1;
  config.no_speech = config.no_timestamps - 1;
  if (config.timestamp_begin >= vocab || config.no_speech < 2) {
    return fields.bad("no_timestamps_token_id", "leaves no timestamps behind it");
  }
  TRY_ASSIGN(const int previous,
             fields.integer_or("prev_sot_token_id", config.no_speech - 1, {1, vocab - 1}));
  config.start_of_previous = previous;
  TRY_ASSIGN(config.multilingual,
             fields.boolean("is_multilingual", fields.find("lang_to_id") != nullptr));
  TRY_ASSIGN(config.initial_timestamp_max,
             fields.integer_or("max_initial_timestamp_index", 50, {0, 1500}));
  TRY(read_tokens(fields, "suppress_tokens", vocab, config.suppressed));
  TRY(read_tokens(fields, "begin_suppress_tokens", vocab, config.suppressed_first));
  TRY(read_alignment_heads(fields, config));
  if (config.multilingual) {
    TRY(read_languages(fields, config));
    TRY(read_tasks(fields, config));
    if (config.languages.empty()) {
      return fields.bad("lang_to_id", "is missing, but the model is multilingual");
    }
  }
  // What opens a prompt is never said, whatever the file lists: start, translate, transcribe, start
  // of a language model's text, start of what came before, no speech.
  for (const TokenId token :
       {config.start, config.transcribe, config.translate, config.start_of_previous - 1,
        config.start_of_previous, config.no_speech}) {
    if (token >= 0) config.suppressed.push_back(token);
  }
  return {};
}

Result<Json> read_json(const std::string& file) {
  TRY_ASSIGN(const std::string text, base::read_file(file, kFileBytesMax));
  Result<Json> json = Json::parse(text);
  if (json.ok() && json->is_object()) return std::move(json).value();
  return Error{ErrorCode::kBadCheckpoint,
               fmt::format("{}: {}", file, json.ok() ? "must be an object" : json.error().message)};
}

}  // namespace

TokenId WhisperConfig::language(std::string_view name) const {
  for (const auto& [known, token] : languages) {
    if (known == name) return token;
  }
  return -1;
}

// Of a window: spectrogram and states with their taps, what a layer's passes put beside them, the
// keys and values of all layers, a prompt's logits.
int64_t WhisperConfig::workspace_bytes() const {
  constexpr int64_t kTaps = 3;  // of either convolution
  const int64_t hidden = hidden_size;
  const int64_t positions = source_positions;
  const int64_t taps =
      frames() * kTaps * mel_bands + frames() * hidden + positions * kTaps * hidden;
  const int64_t states = positions * (6 * hidden + std::max(encoder.inner, decoder.inner));
  const int64_t blocks = 2 * hidden * (positions + decoder.layers * (positions + target_positions));
  const int64_t logits = int64_t{target_positions} * vocab_size;
  return static_cast<int64_t>(sizeof(float)) * (taps + states + blocks + logits);
}

int64_t WhisperConfig::kv_bytes() const {
  return text_bytes() / target_positions * (int64_t{source_positions} + target_positions);
}

int64_t WhisperConfig::text_bytes() const {
  return static_cast<int64_t>(sizeof(float)) * 2 * hidden_size * decoder.layers * target_positions;
}

Result<WhisperConfig> parse_whisper_config(const Json& config, const Json& generation,
                                           const std::string& folder) {
  const ConfigFields fields(config, folder + "/config.json");
  TRY(fields.only("model_type", Json("whisper")));
  TRY(fields.only("activation_function", Json("gelu")));
  TRY(fields.only("scale_embedding", Json(false)));
  TRY(fields.only("quantization_config", Json(nullptr)));
  WhisperConfig parsed;
  TRY_ASSIGN(parsed.hidden_size, fields.integer("d_model", {2, families::kHiddenMax}));
  TRY_ASSIGN(parsed.mel_bands, fields.integer_or("num_mel_bins", 80, {1, 256}));
  TRY_ASSIGN(parsed.vocab_size, fields.integer("vocab_size", {8, families::kVocabMax}));
  TRY_ASSIGN(parsed.source_positions,
             fields.integer_or("max_source_positions", 1500, {1, kPositionsMax}));
  TRY_ASSIGN(parsed.target_positions,
             fields.integer_or("max_target_positions", 448, {8, kPositionsMax}));
  TRY_ASSIGN(parsed.encoder, read_stack(fields, "encoder"));
  TRY_ASSIGN(parsed.decoder, read_stack(fields, "decoder"));
  for (const WhisperConfig::Stack* stack : {&parsed.encoder, &parsed.decoder}) {
    if (parsed.hidden_size % stack->heads == 0) continue;
    return fields.bad("d_model", fmt::format("({}) must be a multiple of the heads ({})",
                                             parsed.hidden_size, stack->heads));
  }
  const ConfigFields generated(generation, folder + "/generation_config.json");
  TRY(read_generation(generated, parsed));
  return parsed;
}

Result<WhisperConfig> read_whisper_config(const std::string& folder) {
  TRY_ASSIGN(const Json config, read_json(folder + "/config.json"));
  TRY_ASSIGN(const Json generation, read_json(folder + "/generation_config.json"));
  return parse_whisper_config(config, generation, folder);
}

}  // namespace pelton::models
