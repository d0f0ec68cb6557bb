// pelton pack: a model's weights in the order in which the fast kernels read them.
#include <fmt/format.h>

#include "apps/loading.h"
#include "apps/packing.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "cli/human_size.h"
#include "cli/interrupt.h"
#include "cli/phased_progress.h"
#include "node/kept_measurement.h"
#include "node/packed_folder.h"

namespace pelton::apps {
namespace {

using checkpoint::Checkpoint;
using cli::Flag;

Result<void> run_pack(const cli::Arguments& arguments) {
  node::PackFolderOptions options;
  if (const std::string& bits = arguments.text("--activations"); bits != "auto") {
    options.activations =
        bits == "int8" ? kernels::Activations::kInt8 : kernels::Activations::kInt16;
  }
  TRY_ASSIGN(options.weights, models::parse_weight_choice(arguments.text("--weights")));
  return pack_model_into(arguments.text("MODEL"), arguments.text("OUT"), options,
                         static_cast<int>(arguments.integer("--threads")),
                         arguments.has("--details"));
}

}  // namespace

cli::Flag packed_weights_flag() {
  return {.name = "--weights",
          .value = "W",
          .help =
              "attention: 8-bit integers, as shipped, or what loses little; shipped keeps the head "
              "as it is, too",
          .default_text = "auto",
          .choices = {"auto", "int8", "shipped"}};
}

Result<void> pack_model_into(const std::string& model, const std::string& out,
                             const node::PackFolderOptions& options, int threads, bool details) {
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(model));
  TRY_ASSIGN(const Checkpoint source, Checkpoint::open(folder));
  if (source.weight_layout() == families::WeightLayout::kTiled) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} is packed already", folder)};
  }
  const base::SystemClock clock;
  base::ThreadPool pool({.threads = threads});
  const base::ThreadPool::PinnedCaller pinned = pool.adopt_caller();
  const cli::Interrupt interrupt;
  cli::PhasedProgress progress(clock);
  const auto go_on = [&](std::string_view what, int64_t done, int64_t total) {
    progress.update(what, done, total);
    return !interrupt.pending();
  };
  TRY_ASSIGN(const models::PackedModel made,
             node::pack_into_folder(source, options, out, pool, go_on));
  progress.clear();
  TRY_ASSIGN(const Checkpoint packed, Checkpoint::open(out));
  fmt::print(stderr, "{}: {}; {}\n", out,
             cli::format_bytes(static_cast<double>(packed.weight_bytes())), verdict(made));
  if (details) fmt::print(stderr, "{}\n", models::details(made));
  if (!made.excess.empty()) fmt::print(stderr, "warning: {}\n", made.excess);
  if (const auto kept = node::keep_measurement(node::measurements_folder(), source, made);
      !kept.ok()) {
    fmt::print(stderr, "warning: what was measured is not kept: {}\n", kept.error().message);
  }
  return {};
}

cli::Verb pack_verb() {
  return {
      .name = "pack",
      .summary = "Writes a model's weights in the order in which the fast kernels read them.",
      .about =
          "A folder that every other verb takes as its MODEL: it computes faster than the\n"
          "original and loads with no work. Experts stay MXFP4 to the bit. Attention becomes\n"
          "8-bit integers, and the head 4-bit ones, which find what is likely; that is computed\n"
          "with the head as shipped. The same text is computed with both models, and --weights\n"
          "auto keeps as shipped what would change too much: more than is asked of fast kernels,\n"
          "or where nothing keeps to that, more than the model's own arithmetic, bf16, does.\n"
          "Models with MXFP4 experts can be packed, and dense ones of safetensors files that are "
          "not\n"
          "quantized.",
      .positionals = {{"MODEL", "a model folder, a .gguf file or a hub id"},
                      {"OUT", "the folder to make"}},
      .flags = {packed_weights_flag(),
                {.name = "--activations",
                 .value = "A",
                 .help =
                     "what weights are multiplied with: int8 computes prompts half faster and is "
                     "coarser; auto takes it where --weights auto finds that it loses little",
                 .default_text = "auto",
                 .choices = {"auto", "int16", "int8"}},
                {.name = "--details",
                 .help = "also say what was tried, and what was measured",
                 .kind = cli::Flag::Kind::kSwitch},
                threads_flag()},
      .examples = {"pelton pack openai/gpt-oss-20b ./gpt-oss-20b-packed",
                   "pelton serve ./gpt-oss-20b-packed",
                   "pelton pack ./model.gguf ./packed --weights shipped"},
      .run = run_pack,
  };
}

}  // namespace pelton::apps
