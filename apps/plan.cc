// pelton plan: what a model will take of this machine, before any weight is read.
#include <algorithm>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "apps/engine_flags.h"
#include "apps/input.h"
#include "apps/verbs.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/synthetic.h"
#include "cli/human_size.h"
#include "cli/terminal.h"
#include "cost_model/footprint.h"
#include "tensor/kv_block.h"

namespace pelton::apps {
namespace {

using cost_model::Footprint;

constexpr int kBarWidth = 32;

// A model of which only the shape is known: a published one by name, or a config.json.
bool is_shape(const std::string& model) {
  return model == "gpt-oss-20b" || model == "gpt-oss-120b" || model.ends_with(".json");
}

Result<Footprint> foresee(const std::string& model, const cost_model::MemoryRequest& request) {
  if (is_shape(model) && !std::filesystem::is_directory(model)) {
    TRY_ASSIGN(const checkpoint::SyntheticOptions shape, checkpoint::synthetic_like(model, 0));
    TRY_ASSIGN(const checkpoint::ModelConfig config,
               checkpoint::parse_model_config(shape.config, nullptr, model));
    return cost_model::footprint(config, request);
  }
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(model));
  TRY_ASSIGN(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::open(folder));
  return cost_model::footprint(checkpoint, request);
}

std::string human(int64_t bytes) {
  return cli::format_bytes(static_cast<double>(bytes));
}

class Table {
 public:
  explicit Table(int64_t memory_bytes) : memory_bytes_(memory_bytes) {}

  // A part of the machine's memory, with a bar of its share.
  void part(const std::string& name, int64_t bytes) {
    const double share =
        memory_bytes_ > 0 ? static_cast<double>(bytes) / static_cast<double>(memory_bytes_) : 0.0;
    const int full =
        std::clamp(static_cast<int>(share * kBarWidth + 0.5), bytes > 0 ? 1 : 0, kBarWidth);
    text_ += fmt::format("{:<20}{:>11}  {}{} {:>3.0f} %\n", name, human(bytes),
                         std::string(static_cast<size_t>(full), '#'),
                         std::string(static_cast<size_t>(kBarWidth - full), '.'), share * 100);
  }
  void detail(const std::string& name, int64_t bytes) {
    if (bytes > 0) text_ += fmt::format("  {:<18}{:>11}\n", name, human(bytes));
  }
  void line(const std::string& text) { text_ += text + "\n"; }
  const std::string& text() const { return text_; }

 private:
  const int64_t memory_bytes_;
  std::string text_;
};

std::string blocks_line(std::string_view name, int count, const cost_model::KvAllocated& kv,
                        int64_t block_bytes) {
  return fmt::format("  {:<14}{:>9} blocks of {} tokens, {} each", name, cli::format_count(count),
                     kv.block_tokens, human(block_bytes));
}

std::string table_of(const std::string& model, const Footprint& footprint) {
  const cost_model::Weights& weights = footprint.weights;
  const cost_model::KvAllocated& kv = footprint.kv;
  const cost_model::KvFormula& formula = footprint.kv_formula;
  Table table(footprint.memory_bytes);
  table.line(fmt::format("{} in {} of memory\n", cli::without_controls(model),
                         human(footprint.memory_bytes)));
  table.part("weights", weights.bytes());
  table.detail("experts", weights.experts);
  table.detail("attention", weights.attention);
  table.detail("embedding", weights.embedding);
  table.detail("head", weights.head);
  table.detail("norms and routers", weights.other);
  table.part("working memory", footprint.workspace.bytes());
  table.part("keys and values", kv.bytes());
  table.detail("full layers", kv.full_bytes());
  table.detail("window layers", kv.window_bytes());
  if (footprint.swap.bytes() > 0) table.part("swap space", footprint.swap.bytes());
  table.part("left", std::max<int64_t>(footprint.memory_bytes - footprint.bytes(), 0));
  if (footprint.bytes() > footprint.memory_bytes) {
    table.line(
        fmt::format("\nThat is {} more than there is: weights would be read from the disk "
                    "again and again.",
                    human(footprint.bytes() - footprint.memory_bytes)));
  }
  table.line(fmt::format(
      "\nkeys and values in {}: {} a token and {} a conversation by the "
      "architecture",
      tensor::kv_type_name(kv.dtype), human(formula.per_token), human(formula.per_sequence)));
  table.line(blocks_line("full layers", kv.full_block_count, kv, kv.full_block_bytes));
  table.line(blocks_line("window layers", kv.window_block_count, kv, kv.window_block_bytes));
  table.line(
      fmt::format("\nroom for {} tokens; {} conversation{} of {} tokens at once, of {} that "
                  "may run",
                  cli::format_count(kv.token_count()), footprint.max_sequences(),
                  footprint.max_sequences() == 1 ? "" : "s",
                  cli::format_count(footprint.context_tokens_max), footprint.sequences_max));
  return table.text();
}

Result<void> run(const cli::Arguments& arguments) {
  node::LoadedModel::Options options;
  TRY(read_memory_flags(arguments, options.executor));
  TRY(read_batch_flags(arguments, options));
  TRY_ASSIGN(const cost_model::MemoryRequest request,
             executor::LocalExecutor::memory_request(options.executor));
  const std::string& model = arguments.text("MODEL");
  TRY_ASSIGN(const Footprint footprint, foresee(model, request));
  if (arguments.has("--json")) {
    return write_output(cost_model::to_json(footprint).dump() + "\n");
  }
  return write_output(table_of(model, footprint));
}

}  // namespace

cli::Verb plan_verb() {
  cli::Verb verb{
      .name = "plan",
      .summary = "Foretells what a model takes of this machine's memory.",
      .about =
          "Reads configuration and headers, no weights. Takes serve's flags; the numbers are "
          "those\n"
          "that serve allocates and logs at start, to the byte. MODEL may also be the name of a\n"
          "published shape or a config.json, before anything is downloaded.",
      .positionals = {{"MODEL",
                       "a model folder, a hub id, gpt-oss-20b, gpt-oss-120b or a "
                       "config.json"}},
      .flags = {{.name = "--memory",
                 .help = "weights, working memory, keys and values (the only plan so far)",
                 .kind = cli::Flag::Kind::kSwitch},
                {.name = "--json",
                 .help = "one JSON object, in bytes, instead of a table",
                 .kind = cli::Flag::Kind::kSwitch}},
      .examples = {"pelton plan openai/gpt-oss-20b --memory",
                   "pelton plan gpt-oss-120b --memory --memory-utilization 0.9 --max-model-len 32K",
                   "pelton plan ./model --memory --json --kv-cache-memory 4GiB --max-num-seqs 64"},
      .run = run,
  };
  for (cli::Flag& flag : memory_flags()) verb.flags.push_back(std::move(flag));
  for (cli::Flag& flag : batch_flags()) verb.flags.push_back(std::move(flag));
  return verb;
}

}  // namespace pelton::apps
