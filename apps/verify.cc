// pelton verify: is this model whole, and does it compute what it should?
#include "apps/input.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "cli/phased_progress.h"
#include "node/model_verification.h"

namespace pelton::apps {
namespace {

using cli::Flag;

Result<void> run_verify(const cli::Arguments& arguments) {
  TRY_ASSIGN(const std::string model, checkpoint::resolve_model(arguments.text("MODEL")));
  TRY_ASSIGN(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::open(model));
  const base::SystemClock clock;
  base::ThreadPool pool({.threads = static_cast<int>(arguments.integer("--threads"))});
  const base::ThreadPool::PinnedCaller pinned = pool.adopt_caller();
  cli::PhasedProgress progress(clock);
  TRY_ASSIGN(
      const node::ModelVerification verification,
      node::verify_model(checkpoint,
                         {.hashes = !arguments.has("--no-hashes"),
                          .tokens = static_cast<size_t>(arguments.integer("--tokens")),
                          .progress = [&](std::string_view what, int64_t done,
                                          int64_t total) { progress.update(what, done, total); }},
                         pool));
  progress.clear();
  TRY(write_output(arguments.has("--json")
                       ? node::verification_json(checkpoint, verification).dump() + "\n"
                       : node::verification_text(checkpoint, verification)));
  return node::verification_verdict(model, verification);
}

}  // namespace

cli::Verb verify_verb() {
  return {
      .name = "verify",
      .summary = "Checks a model's files, numbers and arithmetic.",
      .about =
          "Names, types and shapes of all tensors; SHA-256 of the files where the Hugging Face\n"
          "cache or the published list says what it should be; no NaN, infinity or invalid scale;\n"
          "then a text through the plain reference and the fast kernels, compared after each "
          "block.\n"
          "Ends with 4 if anything is damaged.",
      .positionals = {{"MODEL", "a model folder, a .gguf file or a hub id"}},
      .flags = {{.name = "--tokens",
                 .value = "N",
                 .help = "length of the text that is computed; 0 computes nothing",
                 .kind = Flag::Kind::kInteger,
                 .default_text = "32",
                 .most = 512},
                {.name = "--no-hashes",
                 .help = "do not hash the files",
                 .kind = Flag::Kind::kSwitch},
                {.name = "--json",
                 .help = "one JSON object, with every block's difference",
                 .kind = Flag::Kind::kSwitch},
                {.name = "--threads",
                 .value = "T",
                 .help = "0: one for each usable processor",
                 .kind = Flag::Kind::kInteger,
                 .default_text = "0",
                 .most = 1024}},
      .examples = {"pelton verify openai/gpt-oss-20b", "pelton verify ./model.gguf --json"},
      .run = run_verify,
  };
}

}  // namespace pelton::apps
