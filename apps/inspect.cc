// pelton inspect: what a checkpoint is, without computing anything.
#include <fmt/format.h>

#include "apps/input.h"
#include "apps/verbs.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/describe.h"
#include "node/model_template.h"

namespace pelton::apps {
namespace {

Result<void> run(const cli::Arguments& arguments) {
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(arguments.text("MODEL")));
  TRY_ASSIGN(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::open(folder));
  if (arguments.has("--json")) {
    Json json = checkpoint::describe_json(checkpoint);
    json.set("chat_format", node::chat_choice(checkpoint));
    return write_output(json.dump() + "\n");
  }
  return write_text(checkpoint::describe(checkpoint) +
                    fmt::format("{:<18}{}\n", "chat format", node::chat_choice(checkpoint)));
}

}  // namespace

cli::Verb inspect_verb() {
  return {
      .name = "inspect",
      .summary = "Shows a model's shape, parameters, bytes and context.",
      .about =
          "Opens every file and checks every tensor's name, type, shape and place; reads no "
          "weights. Says which chat format the tokenizer and the chat template give, and why.",
      .positionals = {{"MODEL", "a model folder, a .gguf file or a hub id"}},
      .flags = {{.name = "--json",
                 .help = "one JSON object instead of a table",
                 .kind = cli::Flag::Kind::kSwitch}},
      .examples = {"pelton inspect openai/gpt-oss-20b", "pelton inspect ./model --json"},
      .run = run,
  };
}

}  // namespace pelton::apps
