// pelton synth: a checkpoint of random weights in the published layout.
#include <fmt/format.h>

#include "apps/verbs.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "checkpoint/synthetic.h"
#include "cli/human_size.h"
#include "cli/progress.h"
#include "tokenizer/tokenizer_json_writer.h"

namespace pelton::apps {
namespace {

using cli::Flag;

// A vocabulary too small for every byte and the control tokens gets no tokenizer: such a model is
// run on token ids.
Result<void> write_tokenizer(const Json& config, const std::string& folder) {
  const int64_t vocab_size = config.integer("vocab_size").value_or(0);
  if (vocab_size < tokenizer::kSyntheticVocabularyMin) {
    fmt::print(stderr, "a vocabulary of {} has no room for text: no tokenizer.json is written\n",
               vocab_size);
    return {};
  }
  TRY_ASSIGN(const std::string text,
             tokenizer::synthetic_tokenizer_json(static_cast<int>(vocab_size)));
  return base::write_file(folder + "/tokenizer.json", text);
}

Result<void> run(const cli::Arguments& arguments) {
  const std::string& folder = arguments.text("OUT");
  TRY_ASSIGN(checkpoint::SyntheticOptions options,
             checkpoint::synthetic_like(arguments.text("--like"),
                                        static_cast<int>(arguments.integer("--layers"))));
  options.seed = static_cast<uint64_t>(arguments.integer("--seed"));

  const base::SystemClock clock;
  base::ThreadPool pool({});
  pool.adopt_caller();
  const int64_t start_ns = clock.now_ns();
  int64_t bytes = 0;
  {
    cli::Progress progress("writing", cli::Progress::Unit::kBytes, clock);
    TRY(checkpoint::write_synthetic(options, folder, pool, [&](int64_t done, int64_t total) {
      bytes = total;
      progress.update(done, total);
    }));
  }
  TRY(write_tokenizer(options.config, folder));
  const double seconds = static_cast<double>(clock.now_ns() - start_ns) * 1e-9;
  fmt::print(stderr, "{}: {} of random weights in {} ({}/s)\n", folder,
             cli::format_bytes(static_cast<double>(bytes)), cli::format_duration(seconds),
             cli::format_bytes(static_cast<double>(bytes) / seconds));
  return {};
}

}  // namespace

cli::Verb synth_verb() {
  return {
      .name = "synth",
      .summary = "Writes a random-weight checkpoint of a given shape.",
      .about =
          "For measuring where the real weights cannot be had: config.json, safetensors and\n"
          "tokenizer.json in the published layout, with sane scales. Same shape and seed, same "
          "bytes.",
      .positionals = {{"OUT", "the folder to make"}},
      .flags = {{.name = "--like",
                 .value = "SHAPE",
                 .help = "gpt-oss-20b, gpt-oss-120b or a config.json",
                 .required = true},
                {.name = "--layers",
                 .value = "N",
                 .help = "so many layers instead of the shape's; 0 keeps them",
                 .kind = Flag::Kind::kInteger,
                 .default_text = "0",
                 .most = 1024},
                {.name = "--seed",
                 .value = "S",
                 .help = "of the random weights",
                 .kind = Flag::Kind::kInteger,
                 .default_text = "0"}},
      .examples = {"pelton synth --like gpt-oss-20b /data/synthetic-20b",
                   "pelton synth --like gpt-oss-120b --layers 2 ./small",
                   "pelton synth --like ./my-config.json --seed 7 ./mine"},
      .run = run,
  };
}

}  // namespace pelton::apps
