// pelton inspect: what a checkpoint is, without computing anything.
#include <fmt/format.h>

#include "apps/input.h"
#include "apps/inspect_sound.h"
#include "apps/verbs.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/describe.h"
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

std::string audio_line(const std::string& folder) {
  if (!has_audio_tokens(folder)) return {};
  return fmt::format("{:<18}Orpheus' tokens: text to speech (pelton serve --speech-decoder)\n",
                     "task");
}

// What is served of an encoder, or of a model with a classification head, and by which command;
// empty: it makes text.
struct Task {
  std::string name;
  std::string command;
};

Task vector_task(const families::ModelConfig& config) {
  if (config.label_count == 0 && !config.is_encoder()) return {};
  if (config.label_count == 0) {
    return {"text to vectors", "pelton serve, then POST /v1/embeddings; pelton embed"};
  }
  if (config.label_count == 1 && config.is_encoder()) {
    return {"pairs of texts to scores", "pelton serve, then POST /v1/rerank; pelton embed --query"};
  }
  return {"text to labels", "pelton serve, then POST /classify; pelton embed --labels"};
}

Result<void> run_inspect(const cli::Arguments& arguments) {
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(arguments.text("MODEL")));
  if (const auto written = inspect_sound(folder, arguments.has("--json"))) return *written;
  TRY_ASSIGN(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::open(folder));
  const node::ChatDescription chat = node::describe_chat(checkpoint);
  const Task task = vector_task(checkpoint.config());
  if (arguments.has("--json")) {
    Json json = checkpoint::describe_json(checkpoint);
    json.set("chat_format", chat.choice);
    if (!chat.dialect.empty()) json.set("chat_dialect", chat.dialect);
    if (chat.features) json.set("chat_template", *chat.features);
    if (!task.name.empty()) json.set("task", task.name);
    if (has_audio_tokens(folder)) json.set("task", "text to speech");
    return write_output(json.dump() + "\n");
  }
  if (!task.name.empty()) {
    return write_text(checkpoint::describe(checkpoint) +
                      fmt::format("{:<18}{} ({})\n", "task", task.name, task.command));
  }
  return write_text(checkpoint::describe(checkpoint) + chat_lines(chat) + audio_line(folder));
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
      .run = run_inspect,
  };
}

}  // namespace pelton::apps
