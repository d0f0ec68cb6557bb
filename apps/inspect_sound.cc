#include "apps/inspect_sound.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/input.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/tensor_file.h"
#include "cli/human_size.h"
#include "models/snac.h"
#include "models/whisper_config.h"
#include "node/loaded_speech_model.h"

namespace pelton::apps {
namespace {

constexpr size_t kConfigBytesMax = size_t{4} << 20;
constexpr size_t kTokenizerBytesMax = size_t{256} << 20;

Json stack_json(const models::WhisperConfig::Stack& stack) {
  Json json{Json::Object{}};
  json.set("layers", stack.layers).set("heads", stack.heads).set("intermediate_size", stack.inner);
  return json;
}

std::string stack_line(const char* name, const models::WhisperConfig::Stack& stack) {
  return fmt::format("{:<18}{} layers, {} heads, intermediate size {}\n", name, stack.layers,
                     stack.heads, stack.inner);
}

Result<void> inspect_whisper(const std::string& folder, bool as_json) {
  TRY_ASSIGN(const models::WhisperConfig config, models::read_whisper_config(folder));
  TRY_ASSIGN(const checkpoint::TensorFile file,
             checkpoint::TensorFile::open(folder + "/model.safetensors"));
  const auto languages = static_cast<int64_t>(config.languages.size());
  if (as_json) {
    Json json{Json::Object{}};
    json.set("family", "whisper").set("task", "speech to text");
    json.set("hidden_size", config.hidden_size).set("vocab_size", config.vocab_size);
    json.set("mel_bands", config.mel_bands).set("languages", languages);
    json.set("multilingual", config.multilingual);
    json.set("word_times", !config.alignment_heads.empty());
    json.set("encoder", stack_json(config.encoder)).set("decoder", stack_json(config.decoder));
    json.set("weight_bytes", file.weight_bytes());
    return write_output(json.dump() + "\n");
  }
  std::string lines =
      fmt::format("{:<18}Whisper: speech to text (pelton serve, pelton transcribe)\n", "family");
  lines += fmt::format("{:<18}{}\n", "hidden size", config.hidden_size);
  lines += stack_line("encoder", config.encoder) + stack_line("decoder", config.decoder);
  lines += fmt::format("{:<18}{} bands, windows of {:.0f} s\n", "mel", config.mel_bands,
                       config.frames() / 100.0);
  lines += fmt::format("{:<18}{}\n", "languages",
                       config.multilingual ? std::to_string(languages) : "English only");
  lines += fmt::format("{:<18}{}\n", "word times",
                       config.alignment_heads.empty()
                           ? "none: generation_config.json names no alignment_heads"
                           : fmt::format("by {} heads", config.alignment_heads.size()));
  lines += fmt::format("{:<18}{} tokens\n", "vocabulary", config.vocab_size);
  lines += fmt::format("{:<18}{}\n", "weights",
                       cli::format_bytes(static_cast<double>(file.weight_bytes())));
  return write_text(lines);
}

// A decoder of codes; its config.json names no kind of model.
bool is_snac(const std::string& folder) {
  const Result<std::string> text = base::read_file(folder + "/config.json", kConfigBytesMax);
  if (!text.ok()) return false;
  const Result<Json> config = Json::parse(*text);
  return config.ok() && config->is_object() && config->find("vq_strides") != nullptr &&
         config->find("decoder_rates") != nullptr;
}

Result<void> inspect_snac(const std::string& folder, bool as_json) {
  TRY_ASSIGN(const models::SnacConfig config, models::read_snac_config(folder));
  TRY_ASSIGN(const checkpoint::TensorFile file, models::open_snac_weights(folder));
  const int samples = config.samples_per_frame();
  if (as_json) {
    Json json{Json::Object{}};
    json.set("family", "snac").set("task", "codes to sound");
    json.set("sample_rate", config.sample_rate).set("samples_per_frame", samples);
    json.set("book_size", config.book_size);
    Json::Array strides;
    for (const int stride : config.strides) strides.emplace_back(stride);
    json.set("strides", std::move(strides)).set("weight_bytes", file.weight_bytes());
    return write_output(json.dump() + "\n");
  }
  std::string lines = fmt::format(
      "{:<18}SNAC: codes to sound (pelton serve --speech-decoder, pelton snac)\n", "family");
  lines +=
      fmt::format("{:<18}{} Hz, {} samples for each frame\n", "sound", config.sample_rate, samples);
  lines += fmt::format("{:<18}{} of {} codes, one code each {} frames\n", "books",
                       config.strides.size(), config.book_size, fmt::join(config.strides, ", "));
  lines += fmt::format("{:<18}{}\n", "weights",
                       cli::format_bytes(static_cast<double>(file.weight_bytes())));
  return write_text(lines);
}

}  // namespace

std::optional<Result<void>> inspect_sound(const std::string& folder, bool as_json) {
  if (node::is_speech_model(folder)) return inspect_whisper(folder, as_json);
  if (is_snac(folder)) return inspect_snac(folder, as_json);
  return std::nullopt;
}

bool has_audio_tokens(const std::string& folder) {
  const Result<std::string> text = base::read_file(folder + "/tokenizer.json", kTokenizerBytesMax);
  return text.ok() && text->find("\"<custom_token_0>\"") != std::string::npos;
}

}  // namespace pelton::apps
