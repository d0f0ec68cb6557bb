// pelton: one binary, one verb at a time.
#include <csignal>

#include "apps/verbs.h"
#include "apps/version.h"
#include "cli/command_line.h"

int main(int argc, char** argv) {
  using namespace pelton;
  // A reader that goes away (| head) is an error of that write, not the death of the process.
  std::signal(SIGPIPE, SIG_IGN);
  const cli::CommandLine command_line(
      {.name = "pelton",
       .version = apps::kVersion,
       .summary = "serves gpt-oss models, on the machine you have",
       .examples = {"pelton serve openai/gpt-oss-20b", "pelton chat ./my-model",
                    "pelton inspect openai/gpt-oss-20b",
                    "pelton tokenize openai/gpt-oss-20b --text 'Hello, wheel.' --ids"}},
      {apps::serve_verb(), apps::chat_verb(), apps::generate_verb(), apps::logits_verb(),
       apps::tokenize_verb(), apps::inspect_verb(), apps::synth_verb(),
       apps::bench_latency_verb()});
  return command_line.run(argc, argv);
}
