// pelton inspect: what a checkpoint is, without computing anything.
#include <fmt/format.h>

#include "apps/input.h"
#include "apps/verbs.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/describe.h"
#include "checkpoint/tensor_file.h"
#include "cli/human_size.h"
#include "models/whisper_config.h"
#include "node/loaded_speech_model.h"
#include "node/model_template.h"

namespace pelton::apps {
namespace {

// "chat dialect      hermes", "template filters  tojson, trim"
std::string chat_lines(const node::ChatDescription& chat) {
  std::string lines = fmt::format("{:<18}{}\n", "chat format", chat.choice);
  if (!chat.dialect.empty()) lines += fmt::format("{:<18}{}\n", "chat dialect", chat.dialect);
  if (!chat.features) return lines;
  std::string used;
  for (const Json::Member& kind : chat.features->as_object()) {
    std::string names;
    for (const Json& name : kind.value.as_array()) names += " " + name.as_string();
    if (!names.empty()) used += fmt::format("{}{}:{}", used.empty() ? "" : "; ", kind.key, names);
  }
  return lines + fmt::format("{:<18}{}\n", "template uses", used);
}

Json stack_json(const models::WhisperConfig::Stack& stack) {
  Json json{Json::Object{}};
  json.set("layers", stack.layers).set("heads", stack.heads).set("intermediate_size", stack.inner);
  return json;
}

std::string stack_line(const char* name, const models::WhisperConfig::Stack& stack) {
  return fmt::format("{:<18}{} layers, {} heads, intermediate size {}\n", name, stack.layers,
                     stack.heads, stack.inner);
}

// A Whisper model, which is no family of those below.
Result<void> inspect_speech(const std::string& folder, bool as_json) {
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

Result<void> run(const cli::Arguments& arguments) {
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(arguments.text("MODEL")));
  if (node::is_speech_model(folder)) return inspect_speech(folder, arguments.has("--json"));
  TRY_ASSIGN(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::open(folder));
  const node::ChatDescription chat = node::describe_chat(checkpoint);
  if (arguments.has("--json")) {
    Json json = checkpoint::describe_json(checkpoint);
    json.set("chat_format", chat.choice);
    if (!chat.dialect.empty()) json.set("chat_dialect", chat.dialect);
    if (chat.features) json.set("chat_template", *chat.features);
    return write_output(json.dump() + "\n");
  }
  return write_text(checkpoint::describe(checkpoint) + chat_lines(chat));
}

}  // namespace

cli::Verb inspect_verb() {
  return {
      .name = "inspect",
      .summary = "Shows a model's shape, parameters, bytes and context.",
      .about =
          "Opens every file and checks every tensor's name, type, shape and place; reads no "
          "weights. Says which chat format the tokenizer and the chat template give, and why; how "
          "its turns are read; and what of Jinja the template makes use of.",
      .positionals = {{"MODEL", "a model folder, a .gguf file or a hub id"}},
      .flags = {{.name = "--json",
                 .help = "one JSON object instead of a table",
                 .kind = cli::Flag::Kind::kSwitch}},
      .examples = {"pelton inspect openai/gpt-oss-20b", "pelton inspect ./model --json"},
      .run = run,
  };
}

}  // namespace pelton::apps
