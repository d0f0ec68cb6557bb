// pelton inspect: what a checkpoint is, without computing anything.
#include "apps/input.h"
#include "apps/verbs.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/describe.h"

namespace pelton::apps {
namespace {

Result<void> run(const cli::Arguments& arguments) {
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(arguments.text("MODEL")));
  TRY_ASSIGN(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::open(folder));
  if (arguments.has("--json")) {
    return write_output(checkpoint::describe_json(checkpoint).dump() + "\n");
  }
  return write_text(checkpoint::describe(checkpoint));
}

}  // namespace

cli::Verb inspect_verb() {
  return {
      .name = "inspect",
      .summary = "Shows a model's shape, parameters, bytes and context.",
      .about =
          "Opens every file and checks every tensor's name, type, shape and place; reads no "
          "weights.",
      .positionals = {{"MODEL", "a model folder or a hub id"}},
      .flags = {{.name = "--json",
                 .help = "one JSON object instead of a table",
                 .kind = cli::Flag::Kind::kSwitch}},
      .examples = {"pelton inspect openai/gpt-oss-20b", "pelton inspect ./model --json"},
      .run = run,
  };
}

}  // namespace pelton::apps
